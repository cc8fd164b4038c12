package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// StatusSubject is where every replica of a program reports its status. NATS lets each program answer for itself alone.
func StatusSubject(program string) string { return "errand.status." + program }

// Programs are the programs of which at least one replica must run.
var Programs = []string{"mandate-consumer", "mail-consumer", LogPoller}

// LogPoller and TransactionPoller read a list. The latter and CallbackReceiver are optional.
const (
	LogPoller         = "log-poller"
	TransactionPoller = "transaction-poller"
	CallbackReceiver  = "callback-receiver"
)

// ProgramStatus is what a program reports: the faults of /readyz, and its holds.
type ProgramStatus struct {
	Program string        `json:"program"`
	Host    string        `json:"host"`
	Version string        `json:"version"`
	Started messages.Time `json:"started"`
	Faults  []string      `json:"faults"` // why it is not ready, without holds
	// Upstream is the one of Faults that is the service's, as where a poller cannot read its list.
	Upstream string   `json:"upstream,omitempty"`
	Holds    []Hold   `json:"holds"`
	Notes    []string `json:"notes,omitempty"`   // what it says though it can work
	Standby  bool     `json:"standby,omitempty"` // another replica of the poller leads
	// Duplicates are the last requests that have two applications in the transaction list, as far as this process saw.
	Duplicates []string `json:"duplicates,omitempty"`
	// NotStored are the streams that do not store what the program writes, and why; Faults has them too.
	NotStored map[string]string `json:"not_stored,omitempty"`
	// ReadThrough is up to when a poller has published its list, or its leader as it last heard; nil before the first complete
	// reading.
	ReadThrough *messages.Time `json:"read_through,omitempty"`
	// SuppressFor is for how many seconds mail-consumer leaves out an address that mail bounced from; 0 means that it does not.
	SuppressFor int64 `json:"suppress_bounced_seconds,omitempty"`
}

// Hold is an operation that a program does not call at the moment.
type Hold struct {
	Operation messages.Operation `json:"operation"`
	Why       string             `json:"why"`
	Since     messages.Time      `json:"since"`
}

// ProgramOf is the program that processes an operation's requests.
func ProgramOf(op messages.Operation) string {
	domain, _, _ := strings.Cut(string(op), ".")
	return domain + "-consumer"
}

// HoldOf is the first hold of an operation that a program reports, and the program; "" when there is none.
func HoldOf(programs []ProgramStatus, op messages.Operation) (program string, held Hold) {
	for _, p := range programs {
		for _, h := range p.Holds {
			if h.Operation == op {
				return p.Program, h
			}
		}
	}
	return "", Hold{}
}

// NotStored is why what a call of an operation needs is not stored, as its program reports; "" when it is.
func NotStored(programs []ProgramStatus, op messages.Operation) string {
	stream := EventsOf(op)
	for _, p := range programs {
		if why := p.NotStored[stream]; why != "" && p.Program == ProgramOf(op) {
			return notStored(stream, why)
		}
	}
	return ""
}

func notStored(stream, why string) string { return "NATS does not store in " + stream + ": " + why }

// AnswerStatus answers on the program's StatusSubject until the connection is closed. A missing right is only logged, by the
// connection.
func AnswerStatus(nc *nats.Conn, program string, status func() ProgramStatus) error {
	_, err := nc.Subscribe(StatusSubject(program), func(m *nats.Msg) {
		body, _ := json.Marshal(status()) // texts and times always encode
		_ = m.Respond(body)               // a lost answer shows as a program that does not answer
	})
	if err != nil {
		return fmt.Errorf("nats: answer how %s is: %w", program, err)
	}
	return nil
}

// AskStatus collects the programs' answers, sorted by name: until each program answered or is known not to run and no others
// follow, or for retry.StatusAnswer. Without an answer, no program runs or this user may not ask. Each program is asked in an inbox of its
// own, so an answer is by the program that was asked, whatever it says.
func AskStatus(ctx context.Context, nc *nats.Conn) ([]ProgramStatus, error) {
	ctx, done := context.WithTimeout(ctx, retry.StatusAnswer)
	defer done()
	inbox := nc.NewInbox() + "."
	answers, err := nc.SubscribeSync(inbox + "*")
	if err != nil {
		return nil, fmt.Errorf("nats: ask how the programs are: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }() // what comes later is too late
	asked := append([]string{TransactionPoller, CallbackReceiver}, Programs...)
	for _, program := range asked {
		if err := nc.PublishRequest(StatusSubject(program), inbox+program, nil); err != nil {
			return nil, fmt.Errorf("nats: ask how %s is: %w", program, err)
		}
	}
	var all []ProgramStatus
	for silent := len(asked); ; {
		next, stop := ctx, context.CancelFunc(func() {})
		if silent == 0 { // further replicas
			next, stop = context.WithTimeout(ctx, retry.StatusQuiet)
		}
		m, err := answers.NextMsgWithContext(next)
		stop()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			silent--
			continue
		case errors.Is(err, context.DeadlineExceeded):
			slices.SortFunc(all, func(a, b ProgramStatus) int {
				return strings.Compare(a.Program+" "+a.Host, b.Program+" "+b.Host)
			})
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("nats: ask how the programs are: %w", err)
		}
		var status ProgramStatus
		if json.Unmarshal(m.Data, &status) != nil {
			continue
		}
		status.Program = strings.TrimPrefix(m.Subject, inbox)
		if !slices.ContainsFunc(all, func(s ProgramStatus) bool { return s.Program == status.Program }) {
			silent--
		}
		all = append(all, status)
	}
}

// MissingPrograms are the programs in Programs that did not answer.
func MissingPrograms(all []ProgramStatus) (names []string) {
	for _, name := range Programs {
		if !slices.ContainsFunc(all, func(s ProgramStatus) bool { return s.Program == name }) {
			names = append(names, name)
		}
	}
	return names
}
