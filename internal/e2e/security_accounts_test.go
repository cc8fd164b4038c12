package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
)

// mayRead is what those who are not in the programs' account may come to know.
var mayRead = map[string][]string{
	"service": {"events"}, "subscriber": {"events"}, "producer": {"lists"}, "callback-receiver": {"callbacks"},
	"ann": readByPeople, "olga": append(readByPeople, "keys"), "console": readByPeople, "console-act": append(readByPeople, "keys"),
}

var readByPeople = []string{"requests", "events", "callbacks", "log", "dead", "audit"}

// Everybody outside of the programs' account asks the server for whatever its source has a subject for, with
// each body and each reply subject that could do harm, and it leaves errand's streams,
// messages, consumers and their configuration as they were; the only requests that come of
// it are those that were published as such; and nobody learns what is not for them.
func TestNobodyButTheProgramsCanChangeOrReadWhatIsNotNamedForThem(t *testing.T) {
	parallel(t)
	config := withBen(natsConfig(t))
	accounts := accountOf(t, config)
	subjects := map[string][]string{} // by pattern
	for _, pattern := range serverSubjects(t) {
		subjects[pattern] = expand(pattern)
		if moved := strings.Replace(pattern, "$JS.API.", "ERRAND.API.", 1); moved != pattern { // where a reader has its imports
			subjects[moved] = expand(moved)
		}
	}
	for _, subject := range ours() {
		subjects[subject] = []string{subject}
	}
	for user := range maps.Keys(mayRead) {
		account, there := accounts[user]
		if !there {
			continue
		}
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			w := newTarget(t, config)
			for reader, account := range accounts {
				if account != "ERRAND" && (reader == "service" || reader == "subscriber") {
					w.serve(reader)
				}
			}
			w.mayWrite = mayWrite[user]
			before := w.state()
			a := newAttacker(w, user)
			a.attack(subjects)
			after := w.state()
			if user == "producer" && account != "ERRAND" { // its own bucket
				for _, state := range []map[string]string{before, after} {
					delete(state, "messages of OBJ_lists")
				}
			}
			diff := cmp.Diff(before, after)
			errorIf(t, diff != "", "%s changed:\n%s", user, diff)
			w.mu.Lock() // answers to the last of the attacks may still come in
			defer w.mu.Unlock()
			for body, n := range w.requests {
				// The answer to what who acts may write can become a request, as answers to questions do.
				errorIf(t, user == "subscriber" || w.mayWrite == nil && strings.Contains(body, `{"stream":"MA`),
					"%s has the server publish %d times a request: %s", user, n, body)
			}
			for kind, example := range a.learned() {
				errorIf(t, !slices.Contains(mayRead[user], kind), "%s comes to know %s: %s", user, kind, example)
			}
		})
	}
}

// mayWrite are the subjects that those may write to who act; what else of their streams changes is found by subject.
var mayWrite = map[string]*regexp.Regexp{
	"olga":        regexp.MustCompile(`^(audit\.\w+\.olga\.\w+|\w+\.\w+\.(reopened|failed|deferred)\.\w+|mail\.batch\.deferred\.\w+\.\w+)$`),
	"console-act": regexp.MustCompile(`^(audit\.\w+\.\w+\.\w+|\w+\.\w+\.(reopened|failed)\.\w+)$`),
	// Of any request, but nothing else of it.
	"callback-receiver": regexp.MustCompile(`^mandate\.callback\.received\.\w+$`),
}

// withBen adds a second person to a configuration.
func withBen(config string) string {
	ann := regexp.MustCompile(`\{ user: ann,.*\}`).FindString(config)
	return strings.Replace(config, ann, ann+"\n"+strings.ReplaceAll(ann, "ann", "ben"), 1)
}

// ownBody is in everything that an attacker publishes in its own words.
const ownBody = "said-by-the-attacker"

// attacker is a user who keeps what it receives, from wherever it can.
type attacker struct {
	*target
	user string
	nc   *nats.Conn

	mu    sync.Mutex
	known map[string]string // an example of each kind of secret
	got   map[string]bool   // subjects that something came on
}

func newAttacker(w *target, user string) *attacker {
	a := &attacker{target: w, user: user, known: map[string]string{}, got: map[string]bool{}}
	a.nc, _ = connectAs(w.t, w.n.URL, user, quiet, nats.Timeout(time.Minute))
	for _, subject := range []string{">", "_INBOX_" + user + ".>", "*.>", "$JS.>", "$SYS.>", "_R_.>", "_INBOX.>", "_INBOX_ben.>",
		"_INBOX_ann.>", "_INBOX_mail-consumer.>", "mandate.>", "mail.>", "dead.>", "$O.>", "events.>"} {
		w.must(a.nc.Subscribe(subject, a.receive))
		w.must(nil, a.nc.FlushWithContext(patiently(w.t)))
		if a.nc.LastError() == nil { // it hears everything
			break
		}
	}
	return a
}

func (a *attacker) receive(m *nats.Msg) {
	text := string(m.Data)
	var answer struct {
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if json.Unmarshal(m.Data, &answer) == nil {
		text += string(answer.Message.Data)
	}
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
		text += string(decoded)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Header.Get("Status") != "503" { // nobody is there
		a.got[m.Subject] = true
	}
	for _, kind := range []string{"requests", "events", "callbacks", "log", "dead", "audit", "lists", "inbox", "keys"} {
		if strings.Contains(text, secret(kind)) {
			a.known[kind] = m.Subject + " " + text
		}
	}
}

func (a *attacker) learned() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.known)
}

// answered reports whether something came on an inbox of the attacker's.
func (a *attacker) answered(inbox string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.got[inbox]
}

// sync waits until the server has done what it was asked for: it answers its API in order.
func (a *attacker) sync() {
	a.t.Helper()
	ctx := patiently(a.t)
	a.must(nil, a.nc.FlushWithContext(ctx))
	a.must(a.js.AccountInfo(ctx))
	a.must(nil, a.admin.FlushWithContext(ctx))
	a.must(nil, a.nc.FlushWithContext(ctx))
}

// bodies are what a subject is asked with; for a consumer, one that has the server publish to goal.
func bodies(subject, goal string) []string {
	switch {
	case strings.Contains(subject, ".CREATE."):
		return []string{"",
			fmt.Sprintf(`{"stream_name":"MANDATE_EVENTS","config":{"durable_name":"mine","deliver_subject":%q,"ack_policy":"none"}}`, goal)}
	case strings.Contains(subject, ".GET."):
		return []string{"", `{"seq":1}`, `{"last_by_subj":">"}`}
	case strings.Contains(subject, ".RESET."):
		return []string{"", `{"seq":1}`}
	case strings.HasPrefix(subject, "$"), strings.Contains(subject, ".API."):
		return []string{""} // most of the API wants nothing more, or says what is wrong
	}
	return []string{fmt.Sprintf(`{"request_id":%q}`, ownBody)}
}

// attack publishes to every subject, without a reply subject and with the attacker's inbox
// as one; and, to one of each pattern that is answered, with every reply subject there is.
func (a *attacker) attack(subjects map[string][]string) {
	all := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(subjects))...)))
	inbox := func(subject string) string {
		return "_INBOX_" + a.user + "." + base64.RawURLEncoding.EncodeToString([]byte(subject))
	}
	for i, subject := range all {
		for _, body := range bodies(subject, inbox(subject)) {
			a.publish(subject, inbox(subject), body)
			a.publish(subject, "", body)
		}
		if i%100 == 0 {
			a.sync()
		}
	}
	a.sync()
	answering := 0
	for _, pattern := range slices.Sorted(maps.Keys(subjects)) {
		list := subjects[pattern]
		i := slices.IndexFunc(list, func(subject string) bool { return a.answered(inbox(subject)) })
		if i < 0 {
			continue
		}
		answering++
		for _, goal := range all {
			for _, body := range bodies(list[i], goal) {
				a.publish(list[i], goal, body)
			}
		}
		a.sync()
	}
	a.t.Logf("%d subjects of %d patterns, of which %d are answered", len(all), len(subjects), answering)
	for _, inbox := range []string{"_INBOX_mail-consumer.x", "_INBOX_service.x"} {
		a.must(nil, a.admin.Publish(inbox, []byte(secret("inbox"))))
	}
	a.sync()
}

func (a *attacker) publish(subject, reply, body string) {
	m := &nats.Msg{Subject: subject, Reply: reply, Data: []byte(body)}
	a.must(nil, a.nc.PublishMsg(m))
}
