// Package failpoint names the places along the line where the crash matrix of
// internal/e2e has the real programs die. In a build without the tag failpoints,
// which is every build that is shipped, it is empty: no environment variable and no
// flag wakes it.
//
//	taken ─► before started ─► after started ─► before call ─► (call) ─► answer
//	      ─► before outcome ─► after outcome ─► buried ─► before ack ─► after ack
package failpoint

// Points are the names, as Here is called with them. Store points are followed by
// the type of the event, such as "before store mandate.enroll.started".
const (
	Taken       = "taken"        // a request was taken, nothing is known of it
	BeforeStore = "before store" // an event is about to be written
	AfterStore  = "after store"  // and was acknowledged
	BeforeCall  = "before call"  // started is stored, nothing is sent
	Answer      = "answer"       // the answer was read, nothing is stored
	NextBatch   = "next batch"   // between two batches of a message
	Buried      = "buried"       // the dead letter is stored
	BeforeAck   = "before ack"
	AfterAck    = "after ack"
	Page        = "page"        // the poller has read a page, nothing is told
	BeforeTell  = "before tell" // it has the turn and is about to write the page's events
	Telling     = "telling"     // one of them is written, others will follow
	AfterTell   = "after tell"  // the page's events are stored
	BeforeMark  = "before mark" // the sweep is whole, the watermark is not stored
	AfterMark   = "after mark"
)
