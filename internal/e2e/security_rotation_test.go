package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"errand/internal/sandbox"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

// gate is in front of the sandbox and accepts one key at a time. It quotes any other key in its answer.
type gate struct {
	key atomic.Pointer[string]
	box *sandbox.Sandbox
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	shown := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-API-Key")
	if shown != *g.key.Load() {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":true,"status_code":401,"message":"%s is not authorized"}`, shown)
		return
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + mandateToken, "X-Api-Key": mailKey} {
		if r.Header.Get(name) != "" {
			r.Header.Set(name, value)
		}
	}
	g.box.ServeHTTP(w, r)
}

// gated puts a gate in front of the sandbox; change changes the key that it accepts.
func (in *installation) gated(key string) (url string, change func(string)) {
	g := &gate{box: in.box}
	g.key.Store(&key)
	web := httptest.NewServer(g)
	in.t.Cleanup(web.Close)
	return web.URL, func(key string) { g.key.Store(&key) }
}

// volume is a directory of secrets as Kubernetes mounts it: each file is a link into
// ..data, which is itself a link and is replaced at once.
type volume struct {
	t       *testing.T
	dir     string
	version int
}

func (v *volume) file(name string) string { return filepath.Join(v.dir, name) }

func (v *volume) swap(secrets map[string]string) {
	v.t.Helper()
	v.version++
	version := fmt.Sprint("..v", v.version)
	must(v.t, os.Mkdir(v.file(version), 0o700))
	for name, secret := range secrets {
		must(v.t, os.WriteFile(filepath.Join(v.file(version), name), []byte(secret), 0o600))
		if v.version == 1 {
			must(v.t, os.Symlink(filepath.Join("..data", name), v.file(name)))
		}
	}
	must(v.t, os.Symlink(version, v.file("..tmp")))
	must(v.t, os.Rename(v.file("..tmp"), v.file("..data")))
}

// rotation is a program and how it is seen to work.
type rotation struct {
	program string
	url     string   // variable of the upstream's address
	file    string   // variable of the file that holds the key
	without []string // what the files are given instead of
	does    func(id string) (filter string)
}

// The key is replaced upstream while a program runs. It is held, keeps what it has while
// there is nothing to read, and goes on by itself once the new key is in the file.
func TestANewKeyInItsFileEndsAHoldWithoutARestart(t *testing.T) {
	in := install(t, "RETRY_MAX=300ms")
	for _, r := range []rotation{
		{"mandate-consumer", "MANDATE_API_URL", "MANDATE_API_TOKEN", []string{"MANDATE_API_TOKEN=", "MANDATE_PORTAL_KEY=",
			"MANDATE_CHECKSUM_SECRET="},
			func(id string) string {
				in.publish("mandate.enroll.requested", enrollment(id))
				in.publish("mandate.enroll.requested", enrollment(id+"-other")) // of one alone the fault may be its own
				return "mandate.enroll.succeeded." + id
			}},
		{"mail-consumer", "MAIL_API_URL", "MAIL_API_KEY", []string{"MAIL_API_KEY="}, func(id string) string {
			in.publish("mail.send.requested", message(id, 2))
			in.publish("mail.send.requested", message(id+"-other", 2))
			return "mail.send.accepted." + id
		}},
		{"log-poller", "MAIL_API_URL", "MAIL_API_KEY", []string{"MAIL_API_KEY="}, func(id string) string {
			in.send(id)
			return "mail.delivery.*.*"
		}},
	} {
		in.rotate(r)
	}
}

func (in *installation) rotate(r rotation) {
	key := func(n int) string { return fmt.Sprintf("%s-key-%d-%s", r.program, n, secretMark) }
	url, change := in.gated(key(1))
	v := &volume{t: in.t, dir: in.t.TempDir()}
	secrets := func(key string) map[string]string {
		return map[string]string{r.file: key, "MANDATE_PORTAL_KEY": portalKey, "MANDATE_CHECKSUM_SECRET": checksumSecret}
	}
	v.swap(secrets(key(1) + "\n"))
	env := append([]string{r.url + "=" + url, r.file + "_FILE=" + v.file(r.file)}, r.without...)
	if r.program == "mandate-consumer" {
		env = append(env, "MANDATE_PORTAL_KEY_FILE="+v.file("MANDATE_PORTAL_KEY"),
			"MANDATE_CHECKSUM_SECRET_FILE="+v.file("MANDATE_CHECKSUM_SECRET"))
	}
	p := in.start(r.program, env...)
	events := 0
	works := func(filter string) {
		in.t.Helper()
		in.until(r.program+" to work", time.Minute, func() bool { return p.says(http.StatusOK)() && in.count(filter) > events })
		events = in.count(filter)
	}
	in.until("it to be up", time.Minute, func() bool { return p.logged("admin server listens") })
	works(r.does("before"))

	change(key(2))
	filter := r.does("held")
	in.until("it to be refused", time.Minute, p.says(http.StatusServiceUnavailable, "401"))
	v.swap(secrets("\n"))
	in.until("it to meet an empty file", time.Minute, func() bool {
		return p.logged("secrets cannot be read again", r.file+"_FILE: the file is empty")
	})
	v.swap(nil)
	in.until("it to meet no file", time.Minute, func() bool { return p.logged("secrets cannot be read again", "no such file") })
	events = in.count(filter)
	v.swap(secrets(key(2)))
	works(filter)
	errorIf(in.t, !p.logged("credentials reloaded"), "%s does not say that it has a new key:\n%s", r.program, p.lastOutput())
	p.stop(time.Minute)
}

// The NATS password is read from its file at each connect. A program that comes up with
// a wrong one lives, says what is wrong and is ready when the file is right; one whose
// password is replaced at the server goes on with the new one. Neither is restarted.
func TestANewNATSPasswordInItsFileNeedsNoRestart(t *testing.T) {
	in := install(t)
	const file = "nats-password"
	fresh := func(program string) string { return "fresh-" + password(program) }
	running, volumes := map[string]*process{}, map[string]*volume{}
	for _, program := range everyProgram {
		v := &volume{t: t, dir: t.TempDir()}
		v.swap(map[string]string{file: "wrong-" + secretMark})
		volumes[program] = v
		running[program] = in.start(program, "NATS_PASSWORD=", "NATS_PASSWORD_FILE="+v.file(file))
	}
	all := func(what string, is func(p *process) bool) {
		t.Helper()
		in.until("each program "+what, time.Minute, func() bool {
			for _, p := range running {
				if !is(p) {
					return false
				}
			}
			return true
		})
	}
	isRefused := func(p *process) bool { return p.says(http.StatusServiceUnavailable, "does not authorize this user")() }
	isReady := func(p *process) bool { return p.says(http.StatusOK)() }
	swap := func(secrets func(program string) map[string]string) {
		t.Helper()
		for program, v := range volumes {
			v.swap(secrets(program))
		}
	}

	all("to listen", func(p *process) bool { return p.logged("admin server listens") })
	all("to be refused", isRefused)
	for _, p := range running {
		status, _ := p.get("/healthz")
		errorIf(t, status != http.StatusOK, "%s is to be killed for its password: /healthz says %d", p.name, status)
	}
	swap(func(program string) map[string]string { return map[string]string{file: password(program) + "\n"} })
	all("to be ready", isReady)

	config := natsConfig(t)
	for _, program := range everyProgram {
		config = strings.Replace(config, fmt.Sprintf("%q", password(program)), fmt.Sprintf("%q", fresh(program)), 1)
	}
	must(t, in.nats.Reconfigure(config))
	all("to be refused again", isRefused)
	const unread = "NATS_PASSWORD_FILE cannot be read again"
	swap(func(string) map[string]string { return map[string]string{file: "\n"} })
	all("to meet an empty file", func(p *process) bool { return p.logged(unread, "the file is empty") })
	swap(func(string) map[string]string { return nil })
	all("to meet no file", func(p *process) bool { return p.logged(unread, "no such file") })
	swap(func(program string) map[string]string { return map[string]string{file: fresh(program)} })
	all("to be ready again", isReady)
	for _, p := range running {
		if n := strings.Count(p.output.String(), unread); n != 2 {
			t.Errorf("%s logs %d times that there is no password to read, want once for each reason\n%s", p.name, n, p.lastOutput())
		}
	}
	in.publishRequests(1)
	in.waitOutcomes("mandate.enroll.succeeded.*", 1, time.Minute)
	in.waitOutcomes("mail.send.accepted.*", 1, time.Minute)
}

// RECIPIENT_KEY is begun with and replaced as docs/run/security.md says, the poller first, while
// messages are sent: every row of the sending log finds its call, whichever secret made
// its keys and whichever program was between two of them when it came.
func TestNoRowLosesItsCallWhileRecipientKeysChange(t *testing.T) {
	in := install(t)
	first, second := strings.Repeat("1", 32), strings.Repeat("2", 32)
	poller, consumer := in.start("log-poller"), in.start("mail-consumer")
	sent := 0
	for _, change := range []struct{ program, key string }{
		{"log-poller", first}, {"mail-consumer", first}, {"log-poller", second + "," + first}, {"mail-consumer", second}, {"", ""},
	} {
		id := "before-" + change.program + change.key[:min(1, len(change.key))]
		in.publish("mail.send.requested", message(id, 3, "from", "shop@example.test"))
		in.until(id+" to be sent", time.Minute, func() bool { return in.count("mail.send.accepted."+id) > 0 })
		sent += 3
		switch change.program {
		case "log-poller":
			poller.stop(time.Minute)
			poller = in.start(change.program, "RECIPIENT_KEY="+change.key)
		case "mail-consumer":
			consumer.stop(time.Minute)
			consumer = in.start(change.program, "RECIPIENT_KEY="+change.key)
		}
	}
	in.until("every row to be published", time.Minute, func() bool { return in.count("mail.delivery.delivered.*") == sent })
	for _, e := range in.events("mail.delivery.delivered.*") {
		got := decode[messages.DeliveryBody](t, e).Match
		errorIf(t, got.Confidence != messages.MatchExact, "%s: the match is %+v", e.Subject, got)
	}
	secrets := map[string]int{}
	for _, e := range in.events("mail.send.started.*") {
		secrets[decode[messages.SendStarted](t, e).Secret.ID]++
	}
	errorIf(t, secrets[secretOf(t, in.js).ID()] == 0 || secrets[mailkey.NewSecret(first).ID()] == 0 ||
		secrets[mailkey.NewSecret(second).ID()] == 0, "calls by secret: %v, want some of each", secrets)
	in.untilReady(poller)
}
