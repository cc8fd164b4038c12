package bus

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Names of the streams.
const (
	MandateRequests  = "MANDATE_REQUESTS"
	MandateEvents    = "MANDATE_EVENTS"
	MandateCallbacks = "MANDATE_CALLBACKS"
	MailRequests     = "MAIL_REQUESTS"
	MailEvents       = "MAIL_EVENTS"
	MailDeliveries   = "MAIL_DELIVERIES"
	DeadLetters      = "DEAD_LETTERS"
	RateLeases       = "RATE_LEASES"
	Audit            = "AUDIT"
	Keys             = "KEYS"
	MandateScheduled = "MANDATE_SCHEDULED"
	MailScheduled    = "MAIL_SCHEDULED"
	Suppressions     = "SUPPRESSIONS"
)

// room is what the headers of a dead letter need beside its message.
const room = 16 << 10

// Limits are what an operator chooses. A zero field leaves streams as they are; new ones follow them, or Defaults.
type Limits struct {
	Replicas   int           // copies of each stream
	MaxAge     time.Duration // how long events and dead letters are kept
	AckWait    time.Duration // how long a silent consumer keeps a request
	MaxBytes   int64         // of each stream; Unlimited for none
	MaxBytesOf MaxBytes      // of some streams, instead of MaxBytes
	MaxPayload int64         // of the server, bytes
	Lanes      []string      // of requests, beside messages.DefaultLane
}

// MaxBytes is maximum sizes of streams, by name.
type MaxBytes map[string]int64

// Unlimited as Limits.MaxBytes sets no limit.
const Unlimited = -1

// Defaults are the limits of a new installation.
var Defaults = Limits{Replicas: 1, MaxAge: retry.EventsKept, AckWait: retry.AckWait, MaxBytes: Unlimited}

// or fills the zero fields from others.
func (l Limits) or(others Limits) Limits {
	l.Replicas = cmp.Or(l.Replicas, others.Replicas)
	l.MaxAge = cmp.Or(l.MaxAge, others.MaxAge)
	l.AckWait = cmp.Or(l.AckWait, others.AckWait)
	l.MaxBytes = cmp.Or(l.MaxBytes, others.MaxBytes)
	return l
}

// small is the limit of a stream that needs at most so many bytes, unless more is chosen for it.
func (l Limits) small(stream string, most int64) int64 {
	if l.MaxBytes > 0 {
		most = min(most, l.MaxBytes)
	}
	return cmp.Or(l.MaxBytesOf[stream], most)
}

func (l Limits) maxBytes(stream string) int64 { return cmp.Or(l.MaxBytesOf[stream], l.MaxBytes) }

// Streams is the topology: every stream, as it is made. Only the streams of callbacks, leases and suppressions drop messages for room:
// another one that is full refuses what comes. Then a publisher knows that its request was not accepted, and a program
// waits and makes no call that it could not record. Dropped events would be what keeps people from being enrolled or
// written to twice.
//
// No stream with personal data has DenyPurge, which cannot be taken back: erasing a person needs a purge by subject.
func Streams(l Limits) []jetstream.StreamConfig {
	l = l.or(Defaults)
	base := jetstream.StreamConfig{Storage: jetstream.FileStorage, Replicas: l.Replicas, Discard: jetstream.DiscardNew, MaxMsgSize: -1}
	requests := func(name string, ops ...messages.Operation) jetstream.StreamConfig {
		s := base
		s.Name, s.Retention, s.Duplicates = name, jetstream.WorkQueuePolicy, retry.RequestsWindow
		s.AllowDirect = true                                        // people look for a waiting request without a consumer
		s.MaxMsgSize = int32(min(l.MaxPayload-room, math.MaxInt32)) // what was accepted can be dead-lettered
		for _, op := range ops {
			s.Subjects = append(s.Subjects, op.Requested())
		}
		for _, lane := range l.Lanes {
			s.Subjects = append(s.Subjects, ops[0].RequestedIn(lane))
		}
		return s
	}
	kept := func(name string, window time.Duration, subjects ...string) jetstream.StreamConfig {
		s := base
		s.Name, s.Subjects, s.MaxAge, s.Duplicates = name, subjects, l.MaxAge, min(window, l.MaxAge)
		return s
	}
	events := func(name string, subjects ...string) jetstream.StreamConfig {
		s := kept(name, retry.EventsWindow, subjects...)
		s.DenyDelete, s.AllowDirect = true, true
		return s
	}
	deliveries := kept(MailDeliveries, retry.EventsWindow, "mail.delivery.*.*", "mail.log.>")
	deliveries.AllowDirect, deliveries.AllowAtomicPublish = true, true
	dead := kept(DeadLetters, retry.DeadLettersWindow, "dead.>")
	dead.AllowDirect = true // it is read without consumers
	mandates := events(MandateEvents, "mandate.enroll.*.*", "mandate.transactions.*.*", "mandate.application.*.*", "mandate.deduction.*.*",
		"mandate.transactions.turn", "mandate.transactions.watermark")
	mandates.AllowAtomicPublish = true // of transactions, as of deliveries
	streams := []jetstream.StreamConfig{
		requests(MandateRequests, messages.Enroll, messages.Transactions),
		mandates,
		requests(MailRequests, messages.Send, messages.Account),
		events(MailEvents, "mail.send.*.*", "mail.batch.*.*.*", "mail.account.*.*"),
		deliveries,
		dead,
	}
	for i := range streams {
		streams[i].MaxBytes = l.maxBytes(streams[i].Name)
	}
	callbacks := events(MandateCallbacks, messages.Callback.Filter("*"))
	callbacks.Discard, callbacks.MaxBytes = jetstream.DiscardOld, l.small(MandateCallbacks, 64<<20) // strangers send them: they are hints
	// Only the last lease counts; its writer reads it again, maybe behind others.
	leases := kept(RateLeases, retry.EventsWindow, "rate.*")
	leases.MaxAge, leases.Duplicates, leases.AllowDirect = 0, retry.EventsWindow, true
	leases.Discard, leases.MaxMsgsPerSubject, leases.MaxBytes = jetstream.DiscardOld, 64, cmp.Or(l.MaxBytesOf[RateLeases], 1<<20)
	// What people did: nothing is ever removed. It names who acted, and the reason that they wrote.
	audit := events(Audit, "audit.*.*.*")
	audit.MaxAge, audit.Duplicates, audit.DenyPurge, audit.MaxBytes = retry.AuditKept, retry.EventsWindow, true, l.maxBytes(Audit)
	if audit.MaxBytes > 0 {
		audit.MaxBytes = l.small(Audit, 1<<30) // two million records
	}
	// One message that nothing replaces or removes. It is read from the leader alone.
	keys := kept(Keys, retry.EventsWindow, recipientsSubject)
	keys.MaxAge, keys.Duplicates, keys.DenyDelete, keys.DenyPurge = 0, retry.EventsWindow, true, true
	keys.MaxMsgsPerSubject, keys.DiscardNewPerSubject, keys.MaxMsgSize, keys.MaxBytes = 1, true, 1<<10, 1<<20
	// The last word on each address. A full one forgets the oldest, whose next mail bounces: no event is held up for it.
	suppressions := events(Suppressions, suppressionSubject("*", "*"))
	suppressions.MaxAge, suppressions.Duplicates, suppressions.MaxMsgsPerSubject = retry.SuppressionsKept, retry.EventsWindow, 1
	suppressions.Discard, suppressions.MaxBytes = jetstream.DiscardOld, l.small(Suppressions, 256<<20)
	streams = append(append([]jetstream.StreamConfig{keys}, streams...), callbacks, leases, audit, suppressions,
		scheduled(base, MandateScheduled, messages.Enroll), scheduled(base, MailScheduled, messages.Send))
	for i := range streams {
		streams[i].Description = descriptions[streams[i].Name]
	}
	return streams
}

// scheduled is a stream of requests that wait for their time. The servers do not let one that takes schedules refuse messages
// when it is full, and none may be dropped: it has no limit.
func scheduled(base jetstream.StreamConfig, name string, op messages.Operation) jetstream.StreamConfig {
	base.Name, base.Subjects = name, []string{"scheduled." + string(op) + ".*.*.*"}
	base.Retention, base.Discard, base.MaxBytes = jetstream.WorkQueuePolicy, jetstream.DiscardOld, Unlimited
	base.Duplicates, base.AllowDirect, base.AllowMsgSchedules, base.AllowRollup = retry.RequestsWindow, true, true, true
	return base
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

	// Scheduled requests whose time has come.
	EnrollSchedules = Queue{MandateScheduled, "mandate-scheduled", "scheduled.mandate.enroll.due.*.*"}
	SendSchedules   = Queue{MailScheduled, "mail-scheduled", "scheduled.mail.send.due.*.*"}
)

// Queues are all durable consumers, including the lanes'.
func Queues(lanes ...string) []Queue {
	all := []Queue{EnrollQueue, TransactionsQueue, SendQueue, AccountQueue, EnrollSchedules, SendSchedules}
	for _, lane := range lanes {
		all = append(all, EnrollQueue.In(lane), SendQueue.In(lane))
	}
	return all
}

// In is the queue of the same operation's requests in a lane, which only EnrollQueue and SendQueue have.
func (q Queue) In(lane string) Queue {
	if subject := q.Operation().RequestedIn(lane); subject != q.Filter {
		return Queue{q.Stream, q.Name + "-" + lane, subject}
	}
	return q
}

// WithLanes are a queue and, if its operation has lanes, those in lanes.
func (q Queue) WithLanes(lanes ...string) []Queue {
	all := []Queue{q}
	if q.Operation().HasLanes() {
		for _, lane := range lanes {
			all = append(all, q.In(lane))
		}
	}
	return all
}

// Lane is the lane whose requests the queue has, "" for messages.DefaultLane.
func (q Queue) Lane() string { return messages.ParseSubject(q.Filter).Lane }

// LaneName is the lane's name.
func (q Queue) LaneName() string { return cmp.Or(q.Lane(), messages.DefaultLane) }

// LanesOf are the lanes of a stream of requests, beside messages.DefaultLane.
func LanesOf(c jetstream.StreamConfig) (lanes []string) {
	for _, subject := range c.Subjects {
		if lane := messages.ParseSubject(subject).Lane; lane != "" {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// QueueOf is the durable consumer of an operation's requests, a zero one if it has none.
func QueueOf(op messages.Operation) Queue {
	for _, q := range Queues() {
		if q.Filter == op.Requested() {
			return q
		}
	}
	return Queue{}
}

// Config is the consumer's configuration. The history counts attempts and decides waits: there is no MaxDeliver and no BackOff.
func (q Queue) Config(l Limits) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: q.Name, Description: q.description(), FilterSubject: q.Filter,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.or(Defaults).AckWait, MaxDeliver: -1,
		// Requests that wait for a later time are pending too: a long outage must not reach the bound.
		MaxAckPending: 100_000,
		Metadata:      map[string]string{versionKey: strconv.Itoa(messages.Version)},
	}
}

// String is the operation, and the lane if it is not the default one.
func (q Queue) String() string {
	if lane := q.Lane(); lane != "" {
		return string(q.Operation()) + ", lane " + lane
	}
	return string(q.Operation())
}

func (q Queue) description() string {
	if lane := q.Lane(); lane != "" {
		return descriptions[QueueOf(q.Operation()).Name] + ", lane " + lane
	}
	return descriptions[q.Name]
}

// versionKey is where a queue says which version of requests it was last provisioned for. During a rolling upgrade an
// older program learns by it that it may meet requests that only a newer one understands.
const versionKey = "errand.version"

func version(have jetstream.ConsumerConfig) int {
	n, _ := strconv.Atoi(have.Metadata[versionKey]) // 0 where it is missing
	return n
}

// EventsOf is the stream that holds an operation's events.
func EventsOf(op messages.Operation) string {
	switch op {
	case messages.Enroll, messages.Transactions, messages.Application, messages.Deduction:
		return MandateEvents
	case messages.Callback:
		return MandateCallbacks
	case messages.Delivery, messages.Log:
		return MailDeliveries
	}
	return MailEvents
}

// streamOf is the stream that takes what is published on a subject.
func streamOf(subject string) string {
	switch {
	case strings.HasPrefix(subject, "audit."):
		return Audit
	case strings.HasPrefix(subject, "suppression."):
		return Suppressions
	}
	if op := scheduledOperation(subject); op != "" {
		return ScheduledOf(op)
	}
	s := messages.ParseSubject(subject)
	switch {
	case s.Dead:
		return DeadLetters
	case s.State == messages.Requested:
		return QueueOf(s.Operation).Stream
	}
	return EventsOf(s.Operation)
}

// descriptions say what streams and consumers are for, where another tool lists them. An operator's stay.
var descriptions = map[string]string{
	MandateRequests:  "errand: requests about mandates, until they have an outcome",
	MandateEvents:    "errand: what happened to each request about mandates; keeps payers from being enrolled twice",
	MandateCallbacks: "errand: what was sent to the return_url of enrollments; the oldest are dropped for room",
	MailRequests:     "errand: requests about mail, until they have an outcome",
	MailEvents:       "errand: what happened to each request about mail; keeps mail from being sent twice",
	MailDeliveries:   "errand: what the sending log says of each mail, and what log-poller needs to know",
	DeadLetters:      "errand: requests that failed or are of unknown fate, as they were published",
	RateLeases:       "errand: the last leases of FLEET_RATE",
	MandateScheduled: "errand: requests about mandates with a not_before, until then",
	MailScheduled:    "errand: requests about mail with a not_before, until then",
	Suppressions:     "errand: keys of addresses that mail bounced from for good; the oldest are dropped for room",
	Audit:            "errand: who did what to which request or queue, and why",
	Keys:             "errand: the secret that keys of recipients are made with; keep it as long as MAIL_DELIVERIES",

	EnrollQueue.Name:       "errand: mandate-consumer takes enrollments from here",
	TransactionsQueue.Name: "errand: mandate-consumer takes listings of transactions from here",
	SendQueue.Name:         "errand: mail-consumer takes messages from here",
	AccountQueue.Name:      "errand: mail-consumer takes questions about the account from here",
	EnrollSchedules.Name:   "errand: mandate-consumer puts enrollments whose time has come into their queue",
	SendSchedules.Name:     "errand: mail-consumer puts messages whose time has come into their queue",
}
