package retry

import "time"

// Schedule is a growing wait: First, then twice as long each time, up to Max.
type Schedule struct{ First, Max time.Duration }

// Wait returns the n-th wait, from 1.
func (s Schedule) Wait(n int) time.Duration {
	wait := s.First
	for ; n > 1 && wait < s.Max; n-- {
		wait *= 2
	}
	return min(wait, s.Max)
}

// What is tried again, and how often.
var (
	// Store is for a write or a read that NATS did not answer.
	Store = Schedule{50 * time.Millisecond, 2 * time.Second}
	// Keep is for what is stored without a fence, such as records of calls.
	Keep = Schedule{100 * time.Millisecond, 5 * time.Second}
	// Fault is for a request that met an internal error: once a minute in the end.
	Fault = Schedule{5 * time.Second, time.Minute}
	// Spans is for spans that a collector did not accept.
	Spans = Schedule{time.Second, 5 * time.Second}
)

// Single waits.
const (
	// Margin is what the deadline of a started event leaves beyond one call, for storing and quick retries. Clocks may differ by it.
	Margin = 5 * time.Second
	// Fenced is how long a request is deferred while another worker writes to its history.
	Fenced = time.Second
	// SecondLook is when the list is read again after it showed nothing: a call that timed out may still be at work upstream.
	SecondLook = 2 * time.Second
	// LookIsGood is how long the result of a look-up may be acted upon.
	LookIsGood = time.Second
	// Crowded is how long a message to a long list is deferred while enough others are sent.
	Crowded = time.Minute
	// Newer is how long a request is deferred that only a newer program may understand.
	Newer = 10 * time.Second
	// Nak is the shortest deferral, of a request that is due already.
	Nak = 10 * time.Millisecond
	// MissingConsumer is the pause between two looks for a missing queue.
	MissingConsumer = time.Second
	// NotConnected is the pause between two checks of the connection to NATS.
	NotConnected = 100 * time.Millisecond
	// Reconnect is the pause between two tries to reach a server of NATS.
	Reconnect = 500 * time.Millisecond
	// JetStreamStarts is for how long a server without JetStream may still be starting.
	JetStreamStarts = 10 * time.Second
	// Election is how long a cluster may lack a leader. A server that has just started counts as offline for ten seconds more.
	Election = 30 * time.Second
	// Ping is how often a quiet server is asked for a sign of life: a dead one shows within a minute.
	Ping = 20 * time.Second
	// NATSCheck is the pause between two checks of what a program needs of NATS, and the timeout of one.
	NATSCheck = 5 * time.Second
	// RightsMissing is how long a permission counts as missing after a server refused it: longer than any wait until it is used again.
	RightsMissing = 3 * time.Minute
	// FeedHeartbeat is how often a reader learns that there is nothing new. Servers accept no other.
	FeedHeartbeat = time.Second
	// Follow is the pause before a stream is read again.
	Follow = 200 * time.Millisecond
	// ObjectRead is the pause before a chunk of a recipient list is read again.
	ObjectRead = time.Second
	// ResolvePace is the pause between two looks at what became of enrollments.
	ResolvePace = 250 * time.Millisecond
	// LookAgain is the pause before more of them are asked for, if none is due later.
	LookAgain = time.Second
	// LearnOffset is the pause before the offset of the transaction list's times is looked for again.
	LearnOffset = 10 * time.Minute
	// LearnedOffset is how long it is taken for known.
	LearnedOffset = 24 * time.Hour
	// Longest bounds a deferral, what an upstream may ask for, and the pause between two probes.
	Longest = 15 * time.Minute
	// SweepMin is the shortest pause between two sweeps of a list.
	SweepMin = time.Second
	// RoundEvery is the shortest time from one scan of a list to the next.
	RoundEvery = time.Minute
	// LongRound is a scan that is too long for rows that may change.
	LongRound = 10 * time.Minute
	// TailEvery is how often the end of a list is read that grows elsewhere.
	TailEvery = time.Minute
	// MarkEvery is how often an idle sweeper stores its watermark.
	MarkEvery = time.Hour
	// LeadStep is by how much the pause grows before the leadership is taken again.
	LeadStep = 50 * time.Millisecond
	// BatchStep is by how much it grows before a batch of events is stored again.
	BatchStep = time.Millisecond
	// RelearnStep is by how much it grows before another poller's events are read.
	RelearnStep = 20 * time.Millisecond
	// PlaceStep is by how much it grows before the end of a stream is asked for again.
	PlaceStep = 100 * time.Millisecond
	// RateSlice is the time for which a replica leases calls of the fleet's rate at once.
	RateSlice = 100 * time.Millisecond
	// RateSliceMax is the longest such time, where NATS is slow.
	RateSliceMax = time.Second
	// RateSpare is how long a call that is due stays available.
	RateSpare = 500 * time.Millisecond
	// MayCall is how soon a call must follow its wait; it is announced meanwhile. With RateSpare it bounds a burst.
	MayCall = 500 * time.Millisecond
	// MayCallMax is the longest MayCall: it doubles each time that NATS is too slow to store the announcement.
	MayCallMax = Margin / 2
	// RateConflict is the longest pause before a lease is tried again after another replica was faster.
	RateConflict = 20 * time.Millisecond
	// RateRead is the pause before a lease that was just stored is read again.
	RateRead = 5 * time.Millisecond
	// RateShare is the time over which a replica's share of the rate is measured.
	RateShare = 10 * time.Second

	// SpansLost is how often at most the log says that spans are lost.
	SpansLost = time.Hour
)

// Timeouts of answers.
const (
	// Answer is for a write or a read of NATS.
	Answer = 5 * time.Second
	// StatusAnswer is for the programs' answers about their status.
	StatusAnswer = 500 * time.Millisecond
	// StatusQuiet is how long further replicas of a program may take, once one of each answered.
	StatusQuiet = 100 * time.Millisecond
	// PullExpiry is how long the server keeps a pull that it has no message for. It is short since a pull cannot be taken back: a
	// message assigned to it when the subscription ends would come again only after its AckWait, so a stop waits for its end.
	PullExpiry = 2 * time.Second
	// Unexplained is how long the server may refuse a write while what is read does not show why.
	Unexplained = time.Minute
	// ObjectAnswer is how long reads of a chunk of a recipient list are repeated without an answer.
	ObjectAnswer = 30 * time.Second
	// Storage is for a read or write of a poller.
	Storage = 20 * time.Second
	// ReplayAnswer is how long the next of many messages may take.
	ReplayAnswer = 15 * time.Second
	// SpansSent is how long a program that ends waits for its last spans to be taken.
	SpansSent = 3 * time.Second
	// Flush is how long a program that ends waits for its last acknowledgements to be sent.
	Flush = 2 * time.Second
	// Callback is for storing a callback, and when its sender should try again.
	Callback = 5 * time.Second
	// CallbackRead is how long a callback may take to arrive.
	CallbackRead = 10 * time.Second
	// CallbackCrowd is the same when many arrive at once, and how long one waits for its place.
	CallbackCrowd = time.Second
	// AdminEnd is how long it waits for requests to its admin server.
	AdminEnd = time.Second
	// AdminRead is how long such a request may take to arrive.
	AdminRead = 5 * time.Second
	// AdminWrite is how long it may take to be answered.
	AdminWrite = 10 * time.Second
	// AdminIdle is how long an idle connection to it is kept.
	AdminIdle = 2 * time.Minute
	// IssuerAnswer is for one answer of the service that users of the console log in with.
	IssuerAnswer = 10 * time.Second
	// IssuerPause is the pause before that service is asked for its configuration again.
	IssuerPause = 5 * time.Second
	// Login is how long a user may take to log in there.
	Login = 10 * time.Minute
)

// How long the servers keep what they have by default.
const (
	// EventsKept is for events and dead letters.
	EventsKept = 30 * 24 * time.Hour
	// AuditKept is for what people did.
	AuditKept = 400 * 24 * time.Hour
	// AckWait is how long a request's consumer may be silent before another one gets it.
	AckWait = 30 * time.Second
	// RequestsWindow is the duplicate window of requests.
	RequestsWindow = 2 * time.Minute
	// EventsWindow is for streams whose writes are fenced: the fence keeps them single, the ids only cost the server memory.
	EventsWindow = 10 * time.Second
	// DeadLettersWindow is for dead letters, which nothing else keeps single.
	DeadLettersWindow = time.Hour
)

// ResolveAges are the ages of its event at which an uncertain enrollment is looked up: an hour for a slow service, a day for
// one that is out of order, the last two for a service that never answered.
var ResolveAges = []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour,
	ResolveEnough, 2 * ResolveEnough, 7 * ResolveEnough}

// ResolveEnough is the age at which what is not listed was not made, and what is listed without a final state is published.
const ResolveEnough = 24 * time.Hour

// OpenAges are the ages of its event at which an undecided enrollment is looked up, until OpenEnough after its link expired:
// payers decide soon or seldom.
var OpenAges = []time.Duration{2 * time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	6 * time.Hour, 12 * time.Hour, 26 * time.Hour,
	2 * 24 * time.Hour, 4 * 24 * time.Hour, 8 * 24 * time.Hour, 16 * 24 * time.Hour, 30 * 24 * time.Hour}

// OpenEnough is how long after its link has expired an enrollment is looked up.
const OpenEnough = 24 * time.Hour

// CallbackAges are the ages of a callback at which its enrollment is looked up: at once, again if it came right after a look,
// and again if the list did not show a decision yet.
var CallbackAges = []time.Duration{0, CallbackEvery, time.Minute}

// CallbackBack is the age up to which a program looks at callbacks when it starts.
const CallbackBack = 15 * time.Minute

// CallbackEvery is the shortest time between two look-ups of a request that callbacks cause.
const CallbackEvery = 10 * time.Second
