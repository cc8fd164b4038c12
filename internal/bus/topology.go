package bus

import (
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Names of the streams.
const (
	MandateRequests = "MANDATE_REQUESTS"
	MandateEvents   = "MANDATE_EVENTS"
	MailRequests    = "MAIL_REQUESTS"
	MailEvents      = "MAIL_EVENTS"
	MailDeliveries  = "MAIL_DELIVERIES"
	DeadLetters     = "DEAD_LETTERS"
)

const (
	// room is what a dead letter needs beside the message it keeps: headers of its own.
	room = 16 << 10
	// eventsWindow is the duplicate window of streams whose writes are fenced: the
	// fence keeps them single for good, the ids only cost the server memory.
	eventsWindow = 10 * time.Second
)

// Limits are what an operator chooses about the topology.
type Limits struct {
	Replicas   int           `env:"PROVISION_REPLICAS" default:"1" help:"Copies of each stream: 1, 3 or 5."`
	MaxAge     time.Duration `env:"PROVISION_MAX_AGE" default:"720h" help:"How long events are kept: also how long a repeated request is recognised."`
	DeadAge    time.Duration `env:"PROVISION_DEAD_AGE" default:"2160h" help:"How long dead letters are kept."`
	AckWait    time.Duration `env:"PROVISION_ACK_WAIT" default:"30s" help:"How long a silent consumer keeps a request before another gets it."`
	MaxPayload int64         `kong:"-"` // of the server, bytes
}

// Streams is the topology: every stream there is.
func Streams(l Limits) []jetstream.StreamConfig {
	base := jetstream.StreamConfig{Storage: jetstream.FileStorage, Replicas: l.Replicas, Discard: jetstream.DiscardOld, MaxMsgSize: -1}
	requests := func(name string, ops ...messages.Operation) jetstream.StreamConfig {
		s := base
		s.Name, s.Retention, s.Duplicates = name, jetstream.WorkQueuePolicy, 2*time.Minute
		s.MaxMsgSize = int32(min(l.MaxPayload-room, math.MaxInt32)) // what was taken in can be dead-lettered
		s.Discard = jetstream.DiscardNew                            // a full queue says no; it never drops work
		for _, op := range ops {
			s.Subjects = append(s.Subjects, op.Requested())
		}
		return s
	}
	events := func(name string, subjects ...string) jetstream.StreamConfig {
		s := base
		s.Name, s.Subjects, s.MaxAge, s.Duplicates = name, subjects, l.MaxAge, min(eventsWindow, l.MaxAge)
		s.DenyDelete, s.AllowDirect = true, true
		return s
	}
	deliveries := base
	deliveries.Name, deliveries.Subjects = MailDeliveries, []string{"mail.delivery.*.*", "mail.log.>"}
	deliveries.MaxAge, deliveries.Duplicates = l.MaxAge, min(eventsWindow, l.MaxAge)
	deliveries.AllowDirect, deliveries.AllowAtomicPublish = true, true
	deliveries.AllowMsgSchedules, deliveries.AllowMsgTTL, deliveries.AllowRollup = true, true, true
	dead := base
	dead.Name, dead.Subjects, dead.MaxAge, dead.Duplicates = DeadLetters, []string{"dead.>"}, l.DeadAge, min(time.Hour, l.DeadAge)
	return []jetstream.StreamConfig{
		requests(MandateRequests, messages.Enroll, messages.Transactions),
		events(MandateEvents, "mandate.*.*.*"),
		requests(MailRequests, messages.Send, messages.Account),
		events(MailEvents, "mail.send.*.*", "mail.batch.*.*.*", "mail.account.*.*"),
		deliveries,
		dead,
	}
}

// Queue is a durable consumer and the stream it reads.
type Queue struct {
	Stream, Name string
	Filter       string
}

// The durable consumers.
var (
	EnrollQueue       = Queue{MandateRequests, "mandate-enroll", messages.Enroll.Requested()}
	TransactionsQueue = Queue{MandateRequests, "mandate-transactions", messages.Transactions.Requested()}
	SendQueue         = Queue{MailRequests, "mail-send", messages.Send.Requested()}
	AccountQueue      = Queue{MailRequests, "mail-account", messages.Account.Requested()}
	LogQueue          = Queue{MailDeliveries, "mail-log", "mail.log.token"}
)

// Queues are all durable consumers.
func Queues() []Queue {
	return []Queue{EnrollQueue, TransactionsQueue, SendQueue, AccountQueue, LogQueue}
}

// Config is the consumer's configuration. Attempts are counted in the history, so
// there is no MaxDeliver; waits are computed there too, so there is no BackOff.
func (q Queue) Config(l Limits) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{
		Durable: q.Name, FilterSubject: q.Filter,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.AckWait, MaxDeliver: -1,
		// Requests that wait for a later time count as pending too: the bound
		// must not be what a long outage leaves behind.
		MaxAckPending: 100_000,
	}
	if q.Name == LogQueue.Name {
		c.MaxAckPending = 1
	}
	return c
}

// EventsOf is the stream that holds an operation's events.
func EventsOf(op messages.Operation) string {
	switch op {
	case messages.Enroll, messages.Transactions:
		return MandateEvents
	case messages.Delivery:
		return MailDeliveries
	}
	return MailEvents
}
