// Package failpoint names the places where the crash matrix of internal/e2e kills the real programs. Without the build tag
// failpoints, as in every shipped build, it does nothing: no variable and no flag enables it.
//
//	taken ─► before started ─► after started ─► before call ─► (call) ─► answer
//	      ─► before outcome ─► after outcome ─► dead-lettered ─► before ack ─► after ack
package failpoint

// The points at which Here is called. A store point is followed by the event's type, "before store mandate.enroll.started".
const (
	Taken         = "taken"         // a request was received, its history was not read
	BeforeStore   = "before store"  // an event is about to be written
	AfterStore    = "after store"   // the event was acknowledged
	BeforeCall    = "before call"   // started is stored, nothing was sent
	Answer        = "answer"        // the answer was read, nothing was stored
	NextBatch     = "next batch"    // between two batches of a message
	DeadLettered  = "dead-lettered" // the dead letter is stored
	BeforeAck     = "before ack"
	AfterAck      = "after ack"
	Page          = "page"           // the poller has read a page, nothing was published
	BeforePublish = "before publish" // the page's events are about to be published
	Publishing    = "publishing"     // one of them was published, others will follow
	AfterPublish  = "after publish"  // the page's events are stored
	BeforeMark    = "before mark"    // the sweep is complete, the watermark is not stored
	AfterMark     = "after mark"

	BeforeRepublish = "before republish" // a person's redrive is stored, its message is not published
	AfterRepublish  = "after republish"
)
