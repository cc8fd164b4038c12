package retry

import "time"

// Schedule is a growing wait: First, then twice as long each time, up to Max.
type Schedule struct{ First, Max time.Duration }

// Wait gives the n-th wait, n from 1.
func (s Schedule) Wait(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Max; n-- {
		wait *= 2
	}
	return min(wait, s.Max)
}

// What is tried again, and how often.
var (
	// Store is for an event that NATS did not take, or a read that it did not answer.
	Store = Schedule{50 * time.Millisecond, 2 * time.Second}
	// Keep is for what is stored without a fence: dead letters, records of calls.
	Keep = Schedule{100 * time.Millisecond, 5 * time.Second}
	// Fault is for a request that met an error of ours: once a minute in the end.
	Fault = Schedule{5 * time.Second, time.Minute}
	// Spans is for spans of traces that a collector did not take.
	Spans = Schedule{time.Second, 5 * time.Second}
)

// Single waits.
const (
	// Margin is what the deadline of a started event leaves beyond one call: for storing
	// it, and for repetitions after quick answers. Clocks may differ by as much.
	Margin = 5 * time.Second
	// Fenced is how long a request stays away that another worker is writing to.
	Fenced = time.Second
	// ReplicaLag is for how long a replica may not have an event yet that a message refers to.
	ReplicaLag = time.Minute
	// ReplicaRead is the pause before such an event is asked for again.
	ReplicaRead = 100 * time.Millisecond
	// SecondLook is how long after a look-up that found nothing the list is read again: a
	// call that timed out may still be at work upstream.
	SecondLook = 2 * time.Second
	// LookIsGood is for how long what a look-up found may be acted upon.
	LookIsGood = time.Second
	// Newer is how long a request stays away that only a newer program may understand.
	Newer = 10 * time.Second
	// Nak is the shortest time for which a request stays away whose time has come already.
	Nak = 10 * time.Millisecond
	// MissingConsumer is the pause between two looks for a queue that is gone.
	MissingConsumer = time.Second
	// NotConnected is the pause between two looks whether there is a connection to NATS.
	NotConnected = 100 * time.Millisecond
	// Reconnect is the pause between two tries to reach a server of NATS.
	Reconnect = 500 * time.Millisecond
	// JetStreamStarts is for how long a server without JetStream may still be starting.
	JetStreamStarts = 10 * time.Second
	// Election is for how long a cluster may be without a leader. A server that has just started counts as
	// offline for up to ten seconds more.
	Election = 30 * time.Second
	// Ping is how often a quiet server is asked whether it is there: one that is not shows
	// within a minute.
	Ping = 20 * time.Second
	// NATSCheck is the pause between two checks of what a program needs of NATS, and the
	// timeout of one.
	NATSCheck = 5 * time.Second
	// RightsMissing is for how long a right counts as missing that a server last said the
	// user lacks: longer than whatever needs it waits until it tries again.
	RightsMissing = 3 * time.Minute
	// FeedHeartbeat is how often a reader's copies learn that there is nothing new. Servers
	// accept no other.
	FeedHeartbeat = time.Second
	// Follow is the pause before a stream is asked again for what is new in it.
	Follow = 200 * time.Millisecond
	// ObjectRead is the pause before a chunk of a recipient list is asked for again.
	ObjectRead = time.Second
	// ResolvePace is the pause between two looks at what became of enrollments.
	ResolvePace = 250 * time.Millisecond
	// LookAgain is the pause before it is asked for more of them, where none is due later.
	LookAgain = time.Second
	// RetryAfterMax bounds what an upstream may ask for where nothing else does.
	RetryAfterMax = 15 * time.Minute
	// SweepMin is the shortest pause between two sweeps of a list.
	SweepMin = time.Second
	// RoundEvery is the shortest time from one scan of a list to the next.
	RoundEvery = time.Minute
	// LongRound is how long a scan takes that is too long for rows that may change.
	LongRound = 10 * time.Minute
	// TailEvery is how often the end of a list is looked at that grows elsewhere.
	TailEvery = time.Minute
	// MarkEvery is how often an idle sweeper says how far it is.
	MarkEvery = time.Hour
	// LeadStep is by how much the pause grows before the leadership is taken again.
	LeadStep = 50 * time.Millisecond
	// BatchStep is by how much it grows before a batch of events is stored again.
	BatchStep = time.Millisecond
	// RelearnStep is by how much it grows before another poller's events are read.
	RelearnStep = 20 * time.Millisecond
	// PlaceStep is by how much it grows before the end of a stream is asked for again.
	PlaceStep = 100 * time.Millisecond
	// RateSlice is the time whose calls a replica leases of the fleet's rate at once.
	RateSlice = 100 * time.Millisecond
	// RateSliceMax is the longest such time, where NATS is slow.
	RateSliceMax = time.Second
	// RateSpare is for how long a call that is due is kept for whoever needs one.
	RateSpare = 500 * time.Millisecond
	// MayCall is how soon a call is to be made that was waited for: it is announced meanwhile.
	// With RateSpare it bounds what a burst can be.
	MayCall = 500 * time.Millisecond
	// MayCallMax is the same where that was too soon, twice as long each time: where NATS is
	// slow to take the announcement, and the next turn so far off that it does not hold so long.
	MayCallMax = Margin / 2
	// RateConflict is the longest pause before a lease is tried again that another replica's
	// kept from being stored.
	RateConflict = 20 * time.Millisecond
	// RateRead is the pause before a lease is asked for again that was just stored.
	RateRead = 5 * time.Millisecond
	// RateShare is for how long a lease says what a replica's share of the rate is.
	RateShare = 10 * time.Second

	// SpansLost is how often at most the log says that spans are lost.
	SpansLost = time.Hour

	maxDeferral = 15 * time.Minute
)

// For how long an answer is waited for.
const (
	// Answer is for what NATS is asked: a write or a read.
	Answer = 5 * time.Second
	// StatusAnswer is for the programs' answers how they are.
	StatusAnswer = 500 * time.Millisecond
	// StatusQuiet is how long further replicas of a program may take, once one of each answered.
	StatusQuiet = 100 * time.Millisecond
	// PullExpiry is how long the server keeps a pull that it has no message for. It is short
	// since a pull cannot be taken back: a message that the server has assigned when it
	// learns that the subscription ends is delivered in vain, and in a cluster comes again
	// only after its AckWait. So whoever wants no more waits for the end of the pull.
	PullExpiry = 2 * time.Second
	// Unexplained is how long a conflict may stay without an explanation: the server refuses
	// the write, and what is read does not show why.
	Unexplained = time.Minute
	// ObjectAnswer is how long a server that does not answer is asked again for a chunk of
	// a recipient list.
	ObjectAnswer = 30 * time.Second
	// Storage is how long a read or write of a poller may take until it is an error.
	Storage = 20 * time.Second
	// ReplayAnswer is how long the next of many messages may take.
	ReplayAnswer = 15 * time.Second
	// SpansSent is how long a program that ends waits for its last spans to be taken.
	SpansSent = 3 * time.Second
	// Flush is how long a program that ends waits for its last acknowledgements to be sent.
	Flush = 2 * time.Second
	// Callback is how long storing a callback may take, and when its sender is to try again.
	Callback = 5 * time.Second
	// CallbackRead is how long one may take to come.
	CallbackRead = 10 * time.Second
	// CallbackCrowd is how long one may take where many come at once, and how long it waits for its place.
	CallbackCrowd = time.Second
	// AdminEnd is how long it waits for the requests to its admin server.
	AdminEnd = time.Second
	// AdminRead is how long one of those may take to come.
	AdminRead = 5 * time.Second
	// AdminWrite is how long it may take to be answered.
	AdminWrite = 10 * time.Second
	// AdminIdle is how long a connection to it is kept for the next one.
	AdminIdle = 2 * time.Minute
	// IssuerAnswer is for one answer of the service that users of the console log in with.
	IssuerAnswer = 10 * time.Second
	// IssuerPause is the pause before that service is asked for its configuration again.
	IssuerPause = 5 * time.Second
	// Login is how long a user may take to log in there.
	Login = 10 * time.Minute
)

// For how long the servers keep what they have, where an operator does not say otherwise.
const (
	// EventsKept is for events and dead letters.
	EventsKept = 30 * 24 * time.Hour
	// AuditKept is for what people did.
	AuditKept = 400 * 24 * time.Hour
	// AckWait is for a request whose consumer is silent, until another one gets it.
	AckWait = 30 * time.Second
	// RequestsWindow is the duplicate window of requests.
	RequestsWindow = 2 * time.Minute
	// EventsWindow is that of streams whose writes are fenced: the fence keeps them single
	// for good, the ids only cost the server memory.
	EventsWindow = 10 * time.Second
	// DeadLettersWindow is that of the dead letters, which nothing else keeps single.
	DeadLettersWindow = time.Hour
)

// ResolveAges are those at which an enrollment that ended uncertain is looked at, counted
// from its event: an hour for a slow service, a day for one that is out of order. The last
// two are for what the service gave no answer about until then.
var ResolveAges = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour,
	ResolveEnough, 2 * ResolveEnough, 7 * ResolveEnough}

// ResolveEnough is the age at which what is not listed was not made, and what is listed
// without a final state is published as it is.
const ResolveEnough = 24 * time.Hour

// OpenAges are those at which an enrollment is looked at that nothing was decided of, counted
// from its event, until its link has expired and OpenEnough more: payers decide soon or seldom.
var OpenAges = []time.Duration{2 * time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	26 * time.Hour, 2 * 24 * time.Hour, 4 * 24 * time.Hour, 8 * 24 * time.Hour, 16 * 24 * time.Hour, 30 * 24 * time.Hour}

// OpenEnough is for how long after its link has expired an enrollment is looked at.
const OpenEnough = 24 * time.Hour

// CallbackAges are those of what a callback named: at once, again for one that came right after
// a look, and again where the list did not show a decision yet.
var CallbackAges = []time.Duration{0, CallbackEvery, time.Minute}

// CallbackBack is how long ago callbacks came at most that a program looks at when it starts: it
// reads the newer part of the list then, and looks at open enrollments.
const CallbackBack = 15 * time.Minute

// CallbackEvery is the shortest time between two looks at a request that callbacks cause.
const CallbackEvery = 10 * time.Second
