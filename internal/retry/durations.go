package retry

import "time"

// What is tried again, and how often.
var (
	Store = Schedule{50 * time.Millisecond, 2 * time.Second}  // for a write or a read that NATS did not answer
	Keep  = Schedule{100 * time.Millisecond, 5 * time.Second} // for what is stored without a fence, such as records of acts
	Fault = Schedule{5 * time.Second, time.Minute}            // for a request that met an internal error: once a minute in the end
	Spans = Schedule{time.Second, 5 * time.Second}            // for spans that a collector did not accept
)

// Single waits.
const (
	Margin          = 5 * time.Second        // what a deadline leaves beyond one call, for storing and retries; clocks may differ by it
	Fenced          = time.Second            // how long a request is deferred while another worker writes to its history
	SecondLook      = 2 * time.Second        // when the list is read again after it showed nothing: the call may still be at work upstream
	LookIsGood      = time.Second            // how long the result of a look-up may be acted upon
	LookIsGoodMax   = Margin / 2             // the longest LookIsGood: it doubles each time that NATS is too slow to store the announcement
	Crowded         = time.Minute            // how long a message to a long list is deferred while enough others are sent
	Newer           = 10 * time.Second       // how long a request is deferred that only a newer program may understand
	Nak             = 10 * time.Millisecond  // the shortest deferral, of a request that is due already
	MissingConsumer = time.Second            // the pause between two looks for a missing queue
	LastNaks        = 500 * time.Millisecond // how long after its grace a program may take to give back what is in flight
	NotConnected    = 100 * time.Millisecond // the pause between two checks of the connection to NATS
	Reconnect       = 500 * time.Millisecond // the pause between two tries to reach a server of NATS
	JetStreamStarts = 10 * time.Second       // for how long a server without JetStream may still be starting
	Election        = 30 * time.Second       // how long a cluster may lack a leader; a server just started counts as offline for 10 s more
	Ping            = 20 * time.Second       // how often a quiet server is asked for a sign of life: a dead one shows within a minute
	LastWrite       = 500 * time.Millisecond // how long a connection to NATS that is closed waits for its last write
	NATSCheck       = 5 * time.Second        // the pause between two checks of what a program needs of NATS, and the timeout of one
	Stranded        = 2 * time.Minute        // for how long a queue's consumer must seem to have forgotten requests until that counts
	StartOver       = time.Hour              // the pause before a queue is started over again that this did not help
	Overdue         = time.Minute            // the pause between two looks for schedules that the servers did not keep, and how late these are
	Refused         = 2 * time.Minute        // how long a refused write or permission counts at least: longer than any wait but a setting
	FeedHeartbeat   = time.Second            // how often a reader learns that there is nothing new. Servers accept no other.
	Suppressions    = 2 * time.Second        // the pause between two looks for addresses that have bounced
	Suppressed      = time.Minute            // how old the last such look may be until that is worth a note
	Follow          = 200 * time.Millisecond // the pause before a stream is read again
	ObjectRead      = time.Second            // the pause before a chunk of a recipient list is read again
	ResolvePace     = 250 * time.Millisecond // the pause between two looks at what became of enrollments
	LookAgain       = time.Second            // the pause before more of them are asked for, if none is due later
	LearnOffset     = 10 * time.Minute       // the pause before the offset of the transaction list's times is looked for again
	LearnedOffset   = 24 * time.Hour         // how long it is taken for known
	Longest         = 15 * time.Minute       // bounds a deferral, what an upstream may ask for, and the pause between two probes
	SweepMin        = time.Second            // the shortest pause between two sweeps of a list
	ListIsLate      = time.Minute            // how long a list may show the state before one that was just looked up
	RoundEvery      = time.Minute            // the shortest time from one scan of a list to the next
	LongRound       = 10 * time.Minute       // a scan that is too long for rows that may change
	MarkEvery       = time.Hour              // how often an idle sweeper stores its watermark
	MarkMin         = 10 * time.Second       // the shortest time from one watermark to the next
	StandBy         = 3 * time.Second        // how often a standby asks whether another poller leads
	WarnAgain       = time.Minute            // how often at most the log says that a list is still refused
	LeadStep        = 50 * time.Millisecond  // by how much the pause grows before the leadership is taken again
	BatchStep       = time.Millisecond       // by how much it grows before a batch of events is stored again
	RelearnStep     = 20 * time.Millisecond  // by how much it grows before another poller's events are read
	RateSlice       = 100 * time.Millisecond // the time for which a replica leases calls of the fleet's rate at once
	RateSliceMax    = time.Second            // the longest such time, where NATS is slow
	RateSpare       = 500 * time.Millisecond // how long a call that is due stays available
	MayCall         = 500 * time.Millisecond // how soon a call must follow its wait; announced meanwhile. With RateSpare it bounds a burst.
	MayCallMax      = Margin / 2             // the longest MayCall: it doubles each time that NATS is too slow to store the announcement
	RateConflict    = 20 * time.Millisecond  // the longest pause before a lease is tried again after another replica was faster
	RateRead        = 5 * time.Millisecond   // the pause before a lease that was just stored is read again

	SpansLost = time.Hour // how often at most the log says that spans are lost
)

// Timeouts of answers.
const (
	Answer       = 5 * time.Second        // for a write or a read of NATS
	NATSWrite    = 10 * time.Second       // for a write to a connection: a server that takes nothing for so long counts as lost
	StatusAnswer = 500 * time.Millisecond // for the programs' answers about their status
	FindAnswer   = time.Second            // for a console's answer what its index knows
	LeaderAnswer = 2 * time.Second        // for a poller's answer that it leads
	StatusQuiet  = 100 * time.Millisecond // how long further replicas of a program may take, once one of each answered
	// PullExpiry is how long the server keeps a pull that it has no message for. It is short since a pull cannot be taken back: a
	// message assigned to it when the subscription ends would come again only after its AckWait, so a stop waits for its end.
	PullExpiry    = 2 * time.Second
	Unexplained   = time.Minute      // how long the server may refuse a write while what is read does not show why
	ObjectAnswer  = 30 * time.Second // how long reads of a chunk of a recipient list are repeated without an answer
	Storage       = 20 * time.Second // for a read or write of a poller
	ReplayAnswer  = 15 * time.Second // how long the next of many messages may take
	SpansTaken    = 10 * time.Second // how long a collector may take for a batch of spans, with its retries
	SpansSent     = 3 * time.Second  // how long a program that ends waits for its last spans to be taken
	Flush         = 2 * time.Second  // how long a program that ends waits for its last acknowledgements to be sent
	Callback      = 5 * time.Second  // for storing a callback, and when its sender should try again
	CallbackRead  = 10 * time.Second // how long a callback may take to arrive
	CallbackCrowd = time.Second      // the same when many arrive at once, and how long one waits for its place
	AdminEnd      = time.Second      // how long it waits for requests to its admin server
	AdminRead     = 5 * time.Second  // how long such a request may take to arrive
	AdminWrite    = 10 * time.Second // how long it may take to be answered
	AdminIdle     = 2 * time.Minute  // how long an idle connection to it is kept
)

// Waits of the program that shows pages.
const (
	StatusEvery = 5 * time.Second  // the pause between two looks at queues and programs
	PageRead    = 15 * time.Second // how long a browser's request may take to come
	PageWrite   = 20 * time.Second // how long a browser may take to read what it is sent
	PageMake    = 8 * time.Second  // how long it may take to make a page
	PageAct     = 15 * time.Second // how long an act of a person may take, and the page that previews it
)

// How long the servers keep what they have by default.
const (
	EventsKept        = 30 * 24 * time.Hour  // for events and dead letters
	AuditKept         = 400 * 24 * time.Hour // for what people did
	SuppressionsKept  = 400 * 24 * time.Hour // for bounces of addresses
	AckWait           = 30 * time.Second     // how long a request's consumer may be silent before another one gets it
	RequestsWindow    = 2 * time.Minute      // the duplicate window of requests
	EventsWindow      = 10 * time.Second     // for streams whose writes are fenced: their ids only cost the server memory
	DeadLettersWindow = time.Hour            // for dead letters, which nothing else keeps single
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
