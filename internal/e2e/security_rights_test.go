package e2e

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"errand/internal/bus"
	"errand/internal/lists/sink"
	"errand/internal/sandbox/devkit/devtest"
	"errand/pkg/messages"
)

// act is something that somebody does with NATS.
type act struct {
	what string
	may  []string // who; everybody else is refused
	// The subject is published to, or listened to.
	publish, listen string
}

var acts = []act{
	{what: "ask for an enrollment", publish: "mandate.enroll.requested", may: []string{"mandate-consumer"}}, // a scheduled one
	{what: "schedule an enrollment", publish: "scheduled.mandate.enroll.at.r1.f", may: []string{"mandate-consumer"}},
	{what: "ask for a list", publish: "mandate.transactions.requested"},
	{what: "ask for a message", publish: "mail.send.requested", may: []string{"mail-consumer"}}, // a scheduled one
	{what: "schedule a message", publish: "scheduled.mail.send.at.r1.f", may: []string{"mail-consumer"}},
	{what: "ask for the account", publish: "mail.account.requested"},
	{what: "put a recipient list", publish: "$O.lists.C.x"},
	{what: "name a recipient list", publish: "$O.lists.M.x"},
	{what: "clear away a list's chunks", publish: "$JS.API.STREAM.PURGE.OBJ_lists"},
	{what: "read a recipient list", publish: "$JS.API.DIRECT.GET.OBJ_lists", may: []string{"mail-consumer"}},
	{what: "ask the leader for a recipient list", publish: "$JS.API.STREAM.MSG.GET.OBJ_lists", may: []string{"mail-consumer"}},
	{what: "put into another bucket", publish: "$O.others.C.x"},

	{what: "publish that an enrollment began", publish: "mandate.enroll.started.r1", may: []string{"mandate-consumer"}},
	{what: "publish an enrollment's outcome", publish: "mandate.enroll.succeeded.r1", may: []string{"mandate-consumer"}},
	{what: "publish a list", publish: "mandate.transactions.listed.r1", may: []string{"mandate-consumer"}},
	{what: "settle what is uncertain", publish: "mandate.enroll.resolved.r1", may: []string{"mandate-consumer"}},
	{what: "open a corrected enrollment again", publish: "mandate.enroll.reopened.r1", may: []string{"mandate-consumer"}},
	{what: "open a corrected listing again", publish: "mandate.transactions.reopened.r1", may: []string{"mandate-consumer"}},
	{what: "open a corrected message again", publish: "mail.send.reopened.r1", may: []string{"mail-consumer"}},
	{what: "open a corrected look at the account again", publish: "mail.account.reopened.r1", may: []string{"mail-consumer"}},
	{what: "publish a message's outcome", publish: "mail.send.accepted.r1", may: []string{"mail-consumer"}},
	{what: "publish a batch's outcome", publish: "mail.batch.accepted.r1.1", may: []string{"mail-consumer"}},
	{what: "publish the account", publish: "mail.account.reported.r1", may: []string{"mail-consumer"}},
	{what: "publish a delivery", publish: "mail.delivery.bounced.unmatched", may: []string{"log-poller"}},
	{what: "publish how far a message is", publish: "mail.delivery.summary.r1", may: []string{"log-poller"}},
	{what: "settle what is uncertain of a message", publish: "mail.send.resolved.r1", may: []string{"log-poller"}},
	{what: "become the active publisher", publish: "mail.log.turn", may: []string{"log-poller"}},
	{what: "ask which log poller leads", publish: "errand.leader.mail.log", may: []string{"log-poller"}},
	{what: "say that the log poller leads", listen: "errand.leader.mail.log", may: []string{"log-poller"}},
	{what: "ask which transaction poller leads", publish: "errand.leader.mandate.transactions", may: []string{"transaction-poller"}},
	{what: "say that the transaction poller leads", listen: "errand.leader.mandate.transactions", may: []string{"transaction-poller"}},
	{what: "publish an approval", publish: "mandate.application.approved.r1", may: []string{"transaction-poller"}},
	{what: "publish a deduction", publish: "mandate.deduction.failed.unmatched", may: []string{"transaction-poller"}},
	{what: "say how far the transaction list is published", publish: "mandate.transactions.watermark", may: []string{"transaction-poller"}},
	{what: "become the active publisher of transactions", publish: "mandate.transactions.turn", may: []string{"transaction-poller"}},
	{what: "publish a callback", publish: "mandate.callback.received.r1", may: []string{"callback-receiver"}},
	{what: "dead-letter an enrollment", publish: "dead.mandate.enroll.requested", may: []string{"mandate-consumer"}},
	{what: "dead-letter a message", publish: "dead.mail.send.requested", may: []string{"mail-consumer"}},

	{what: "take an enrollment", publish: "$JS.API.CONSUMER.MSG.NEXT.MANDATE_REQUESTS.mandate-enroll", may: []string{"mandate-consumer"}},
	{what: "take a message", publish: "$JS.API.CONSUMER.MSG.NEXT.MAIL_REQUESTS.mail-send", may: []string{"mail-consumer"}},
	{what: "acknowledge an enrollment", publish: "$JS.ACK.MANDATE_REQUESTS.mandate-enroll.1.1.1.1.1", may: []string{"mandate-consumer"}},
	{what: "acknowledge a message", publish: "$JS.ACK.MAIL_REQUESTS.mail-send.1.1.1.1.1", may: []string{"mail-consumer"}},
	{what: "read a request where it waits", publish: "$JS.API.STREAM.MSG.GET.MANDATE_REQUESTS"},
	{what: "read waiting requests", publish: "$JS.API.DIRECT.GET.MANDATE_REQUESTS"},
	{what: "read scheduled requests", publish: "$JS.API.DIRECT.GET.MAIL_SCHEDULED", may: []string{"mail-consumer"}},
	{what: "answer how the mail consumer is", listen: "errand.status.mail-consumer", may: []string{"mail-consumer"}},
	{what: "answer how the receiver of callbacks is", listen: "errand.status.callback-receiver", may: []string{"callback-receiver"}},
	{what: "answer how all programs are", listen: "errand.status.*"},
	{what: "ask how the programs are", publish: "errand.status.mail-consumer"},
	{what: "ask a console", publish: "errand.find.people"},
	{what: "answer for a console", listen: "errand.find.people"},
	{what: "read a request over a consumer of one's own", publish: "$JS.API.CONSUMER.CREATE.MANDATE_REQUESTS.mine"},
	{what: "read dead letters", publish: "$JS.API.CONSUMER.CREATE.DEAD_LETTERS.mine"},
	{what: "read enrollments", publish: "$JS.API.CONSUMER.CREATE.MANDATE_EVENTS.mine", may: []string{"transaction-poller", "provisioner"}},
	{what: "read mail", publish: "$JS.API.CONSUMER.CREATE.MAIL_EVENTS.mine", may: []string{"log-poller", "provisioner"}},
	{what: "read deliveries", publish: "$JS.API.CONSUMER.CREATE.MAIL_DELIVERIES.mine", may: []string{"log-poller", "provisioner"}},
	{what: "read an enrollment's state", publish: "$JS.API.DIRECT.GET.MANDATE_EVENTS",
		may: []string{"mandate-consumer", "transaction-poller"}},
	{what: "ask the leader for the state of an enrollment", publish: "$JS.API.STREAM.MSG.GET.MANDATE_EVENTS",
		may: []string{"mandate-consumer", "transaction-poller"}},
	{what: "ask the leader for the state of a message", publish: "$JS.API.STREAM.MSG.GET.MAIL_EVENTS",
		may: []string{"mail-consumer", "log-poller"}},
	{what: "read the last callback", publish: "$JS.API.DIRECT.GET.MANDATE_CALLBACKS.mandate.callback.received.r1",
		may: []string{"callback-receiver"}},
	{what: "read an enrollment by its subject", publish: "$JS.API.DIRECT.GET.MANDATE_EVENTS.mandate.enroll.succeeded.r1"},
	{what: "see what callbacks say as they come", listen: "mandate.callback.received.*"},
	{what: "read a delivery", publish: "$JS.API.DIRECT.GET.MAIL_DELIVERIES", may: []string{"log-poller"}},
	{what: "read a message's state", publish: "$JS.API.DIRECT.GET.MAIL_EVENTS", may: []string{"mail-consumer", "log-poller"}},

	{what: "lease calls of the mandate consumers", publish: "rate.mandate-consumer", may: []string{"mandate-consumer"}},
	{what: "lease calls of the mail consumers", publish: "rate.mail-consumer", may: []string{"mail-consumer"}},
	{what: "lease calls of the log pollers", publish: "rate.log-poller", may: []string{"log-poller"}},
	{what: "lease calls of the transaction pollers", publish: "rate.transaction-poller", may: []string{"transaction-poller"}},
	{what: "read leases", publish: "$JS.API.DIRECT.GET.RATE_LEASES", may: users[:4]},
	{what: "empty the stream of leases", publish: "$JS.API.STREAM.PURGE.RATE_LEASES"},

	{what: "say that mail bounced from an address", publish: "suppression.bounced.00", may: []string{"log-poller"}},
	{what: "suppress an address", publish: "suppression.decided.00"},
	{what: "read suppressions", publish: "$JS.API.DIRECT.GET.SUPPRESSIONS", may: []string{"mail-consumer"}},
	{what: "store a secret of recipients' keys", publish: "keys.recipients", may: []string{"provisioner"}},
	{what: "read that secret", publish: "$JS.API.STREAM.MSG.GET.KEYS", may: []string{"mail-consumer", "log-poller", "provisioner"}},
	{what: "read that secret of a replica", publish: "$JS.API.DIRECT.GET.KEYS"},

	{what: "make a stream", publish: "$JS.API.STREAM.CREATE.MANDATE_EVENTS", may: []string{"provisioner"}},
	{what: "change a stream", publish: "$JS.API.STREAM.UPDATE.MANDATE_EVENTS", may: []string{"provisioner"}},
	{what: "make a queue", publish: "$JS.API.CONSUMER.CREATE.MAIL_REQUESTS.mail-send.mail.send.requested", may: []string{"provisioner"}},
	{what: "make a stream of one's own", publish: "$JS.API.STREAM.CREATE.MINE"},
	{what: "delete a stream", publish: "$JS.API.STREAM.DELETE.MANDATE_EVENTS"},
	{what: "empty a stream", publish: "$JS.API.STREAM.PURGE.MANDATE_EVENTS"},
	{what: "delete an event", publish: "$JS.API.STREAM.MSG.DELETE.MANDATE_EVENTS"},
	{what: "start a queue over", publish: "$JS.API.CONSUMER.RESET.MANDATE_REQUESTS.mandate-enroll",
		may: []string{"mandate-consumer", "provisioner"}},
	{what: "start the other queue over", publish: "$JS.API.CONSUMER.RESET.MAIL_REQUESTS.mail-send",
		may: []string{"mail-consumer", "provisioner"}},
	{what: "delete a queue", publish: "$JS.API.CONSUMER.DELETE.MANDATE_REQUESTS.mandate-enroll"},
	{what: "pause a queue", publish: "$JS.API.CONSUMER.PAUSE.MANDATE_REQUESTS.mandate-enroll"},
	{what: "say that somebody redrove", publish: "audit.redrive.ann.r1"},
	{what: "read what people did", publish: "$JS.API.DIRECT.GET.AUDIT"},
	{what: "list the streams", publish: "$JS.API.STREAM.NAMES"},

	{what: "listen to requests", listen: "mandate.enroll.requested"},
	{what: "listen to requests for mail", listen: "mail.send.requested"},
	{what: "listen to dead letters", listen: "dead.>"},
	{what: "listen to enrollments", listen: "mandate.*.*.*"},
	{what: "listen to mail", listen: "mail.send.*.*"},
	{what: "listen to deliveries", listen: "mail.delivery.*.*"},
	{what: "listen to all there is", listen: ">"},
	{what: "answer which log poller leads, on a new connection", publish: "_INBOX_log-poller.x.y", may: []string{"log-poller"}},
	{what: "answer which transaction poller leads, on a new connection", publish: "_INBOX_transaction-poller.x.y",
		may: []string{"transaction-poller"}},
	{what: "listen to anybody's answers", listen: "_INBOX.>"},
	{what: "listen to the poller's answers", listen: "_INBOX_log-poller.>", may: []string{"log-poller"}},
	{what: "listen to the mandate consumer's answers", listen: "_INBOX_mandate-consumer.>", may: []string{"mandate-consumer"}},
}

// Every program of the shipped configuration may do what it is there for, and is refused
// all the rest. What a stolen password can do by reply subjects is another matter.
func TestEachProgramMayDoItsOwnWorkAndNothingElse(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	must(t, devtest.Provision(t.Context(), connect(t, n.URL)))
	for _, user := range users[:6] {
		nc, _ := connectAs(t, n.URL, user)
		for _, a := range acts {
			err := a.try(nc)
			switch may := slices.Contains(a.may, user); {
			case err != nil && !errors.Is(err, nats.ErrPermissionViolation):
				t.Errorf("%s, to %s: %v", user, a.what, err)
			case may && err != nil:
				t.Errorf("%s may not %s: %v", user, a.what, err)
			case !may && err == nil:
				t.Errorf("%s may %s", user, a.what)
			}
		}
	}
}

// callback-receiver, which strangers reach, answers for itself alone: not for a consumer that does not run, and not under a name of
// its choice. Who does not run is known at once.
func TestAProgramAnswersForItselfAlone(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	for range 3 {
		nc, _ := connectAs(t, n.URL, "callback-receiver")
		must(t, bus.AnswerStatus(nc, bus.CallbackReceiver, func() bus.ProgramStatus {
			return bus.ProgramStatus{Program: "mail-consumer", Host: "forged"}
		}))
		must(t, nc.Flush())
	}
	for _, user := range []string{"ann", "olga", "console", "console-act", "eraser"} {
		nc, _ := connectAs(t, n.URL, user)
		all, err := bus.AskStatus(t.Context(), nc)
		for try := 0; err == nil && len(all) < 3 && try < 60; try++ { // a busy machine answers some too late
			all, err = bus.AskStatus(t.Context(), nc)
		}
		must(t, err)
		for _, s := range all {
			errorIf(t, s.Program != bus.CallbackReceiver, "%s sees the status of %s", user, s.Program)
		}
		errorIf(t, len(all) != 3 || len(bus.MissingPrograms(all)) != len(bus.Programs), "%s sees %v", user, all)
	}
}

// Either console answers those who may find, of whichever account they are, in their inbox alone; and nobody else, or for it.
func TestAConsoleAnswersWhoMayFind(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	must(t, devtest.Provision(t.Context(), connect(t, n.URL)))
	for _, console := range []string{"console", "console-act"} {
		nc, _ := connectAs(t, n.URL, console)
		must(t, bus.AnswerFind(nc, func(_ context.Context, s bus.Sought) (bus.Known, error) {
			return bus.Known{Through: map[string]uint64{s.Word: 7}}, nil
		}))
		must(t, nc.Flush())
		for user, may := range map[string]bool{"ann": true, "olga": true, "eraser": true, "service": false, "producer": false,
			"subscriber": false, "mail-consumer": false} {
			person, _ := connectAs(t, n.URL, user)
			known, answers := bus.AskFind(t.Context(), person, bus.Sought{Word: "DD001"})
			errorIf(t, answers != may || may && known.Through["DD001"] != 7, "%s asks %s: %v, %v", user, console, known, answers)
			err := act{listen: "errand.find.people"}.try(person)
			errorIf(t, (err != nil) != strings.Contains("ann olga eraser mail-consumer", user), "%s listens: %v", user, err)
		}
		olga, _ := connectAs(t, n.URL, "olga") // has the console record an act of ann's, if it can
		must(t, olga.PublishRequest("errand.find.operators", "audit.redrive.ann.r1", []byte(`{"word":"forged"}`)))
		must(t, olga.PublishRequest("errand.find.people", "audit.redrive.ann.r1", []byte(`{"word":"forged"}`)))
		bus.AskFind(t.Context(), olga, bus.Sought{Word: "last"})
		must(t, nc.Flush())
		acts, _, err := bus.Count(t.Context(), olga, bus.Audit, ">", time.Time{})
		errorIf(t, err != nil || acts > 0, "%s recorded an act: %d, %v", console, acts, err)
		nc.Close()
	}
}

// A person who acts may write their acts under their own name, and no other event; one who only reads may not. The
// console acts for its users, and so under any name.
func TestAPersonWhoActsMayWriteTheirActsAndNothingElse(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	olga, _ := connectAs(t, n.URL, "olga")
	ann, _ := connectAs(t, n.URL, "ann")
	shows, _ := connectAs(t, n.URL, "console")
	console, _ := connectAs(t, n.URL, "console-act")
	for subject, may := range map[string]bool{
		"audit.redrive.olga.r1": true, "audit.redrive.ann.r1": false, "audit.redrive.olga": false,
		"mandate.enroll.reopened.r1": true, "mail.send.failed.r1": true, "mail.batch.deferred.r1.1": true, "mandate.enroll.requested": true,
		"mandate.enroll.succeeded.r1": false, "mandate.enroll.started.r1": false, "mail.send.resolved.r1": false,
		"mail.batch.accepted.r1.1": false, "dead.mail.send.requested": false,
		"$JS.API.CONSUMER.PAUSE.MANDATE_REQUESTS.mandate-enroll": true, "$JS.API.CONSUMER.PAUSE.MAIL_EVENTS.service": false,
		"$JS.API.CONSUMER.DELETE.MANDATE_REQUESTS.mandate-enroll": false, "$JS.API.STREAM.PURGE.MANDATE_EVENTS": false,
		"$JS.API.STREAM.MSG.DELETE.DEAD_LETTERS": false,
	} {
		err := act{publish: subject}.try(olga)
		errorIf(t, err != nil && !errors.Is(err, nats.ErrPermissionViolation) || (err == nil) != may,
			"olga on %s: %v, want that she may: %v", subject, err, may)
		retries := strings.Contains(subject, ".deferred.") // which the console does not do
		if err := (act{publish: subject}).try(console); (err == nil) != (may && !retries || subject == "audit.redrive.ann.r1") {
			t.Errorf("the console on %s: %v", subject, err)
		}
		for _, reader := range []*nats.Conn{ann, shows} {
			if err := (act{publish: subject}).try(reader); (err == nil) != (subject == "mandate.enroll.requested") {
				t.Errorf("%s on %s: %v", reader.Opts.User, subject, err)
			}
		}
	}
}

// What a plan says of a request, and what an act does about it, is decided by what the leader of its stream has. Of these, only who
// must may read the secret of recipients' keys.
func TestPeopleAskTheLeaderForAHistory(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	must(t, devtest.Provision(t.Context(), connect(t, n.URL)))
	for _, user := range []string{"ann", "olga", "console", "console-act", "eraser", "mandate-consumer", "mail-consumer"} {
		nc, _ := connectAs(t, n.URL, user)
		p, err := bus.NewPublisher(nc)
		must(t, err)
		for op, may := range map[messages.Operation]bool{messages.Enroll: user != "mail-consumer", messages.Send: user != "mandate-consumer"} {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if !may {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond) // who is refused gets no answer
			}
			_, err := bus.EventStore{Publisher: p}.Leader(ctx, op, op.Filter("r1"))
			cancel()
			errorIf(t, (err == nil) != may, "%s asks the leader of %s: %v, want that it may: %v", user, bus.EventsOf(op), err, may)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = bus.RecipientSecret(ctx, nc)
		cancel()
		errorIf(t, (err != nil) != slices.Contains([]string{"ann", "console", "mandate-consumer"}, user), "%s reads the secret: %v", user, err)
	}
}

// One user may remove what is stored, publish no request and no outcome, and change no stream. The administrator, who
// restores backups, may do all; the system account and the services' accounts do not have these streams.
func TestTheEraserMayRemoveAndNobodyElse(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	for _, user := range users {
		if slices.Contains([]string{"service", "producer", "subscriber", "system", "admin"}, user) {
			continue
		}
		nc, _ := connectAs(t, n.URL, user)
		for subject, may := range map[string]bool{
			"$JS.API.STREAM.PURGE.MANDATE_EVENTS": true, "$JS.API.STREAM.PURGE.MAIL_DELIVERIES": true,
			"$JS.API.STREAM.MSG.DELETE.DEAD_LETTERS": true, "mandate.enroll.erased.r1": true, "mail.batch.erased.r1.1": true,
			"mail.delivery.erased.r1": true, "audit.erase.ann.r1": true, "audit.redrive.ann.r1": false, "mandate.enroll.requested": false,
			"mandate.enroll.succeeded.r1": false, "mail.send.reopened.r1": false, "mail.send.failed.r1": false,
			"$JS.API.STREAM.DELETE.MANDATE_EVENTS": false, "$JS.API.STREAM.UPDATE.MANDATE_EVENTS": false,
			"$JS.API.CONSUMER.PAUSE.MANDATE_REQUESTS.mandate-enroll": false,
		} {
			err := act{publish: subject}.try(nc)
			switch {
			case err != nil && !errors.Is(err, nats.ErrPermissionViolation):
				t.Fatalf("%s on %s: %v", user, subject, err)
			case user == "eraser" && (err == nil) != may:
				t.Errorf("the eraser on %s: %v, want that it may: %v", subject, err, may)
			case user != "eraser" && may && err == nil && !(user == "console-act" && strings.HasPrefix(subject, "audit.")):
				t.Errorf("%s may publish to %s", user, subject)
			}
		}
	}
}

// try does it and returns the server's refusal. There is no reply subject, so that nothing
// else comes back, and the server answers in order: before the flush is over it is here.
func (a act) try(nc *nats.Conn) error {
	if a.listen != "" {
		s, err := nc.SubscribeSync(a.listen)
		if err != nil {
			return err
		}
		defer func() { _ = s.Unsubscribe() }() // refused or not
	} else if err := nc.Publish(a.publish, []byte("{")); err != nil { // it means nothing to any reader
		return err
	}
	if err := nc.FlushTimeout(time.Minute); err != nil {
		return err
	}
	if err := nc.LastError(); err != nil && strings.Contains(err.Error(), strconv.Quote(a.publish+a.listen)) {
		return err
	}
	return nil
}

// Replicas of a poller hear each other, and nobody else who says that it leads.
func TestOnlyAPollerSaysThatItLeads(t *testing.T) {
	parallel(t)
	n := securedServer(t)
	must(t, devtest.Provision(t.Context(), connect(t, n.URL)))
	for _, user := range []string{"service", "mail-consumer"} {
		nc, _ := connectAs(t, n.URL, user)
		_, err := nc.Subscribe("errand.leader.mail.log", func(m *nats.Msg) { _ = m.Respond(nil) })
		must(t, err)
		must(t, nc.FlushTimeout(5*time.Second))
	}
	open := func() *sink.Store {
		nc, js := connectAs(t, n.URL, "log-poller")
		p, err := bus.NewPublisher(nc)
		must(t, err)
		return sink.New(js, p, "/errand/test", sink.SendingLog)
	}
	leader, standby := open(), open()
	leads := func(want bool) {
		t.Helper()
		led, err := standby.Led(t.Context())
		errorIf(t, led != want || err != nil, "a poller leads: %t, %v, want %t", led, err, want)
	}
	leads(false)
	must(t, leader.Lead(t.Context()))
	leads(true)
	leader.Resign()
	leads(false)
}
