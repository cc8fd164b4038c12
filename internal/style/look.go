package style

// Look is how a state, a class or a result is shown: a class of the style sheet, and a colour in a terminal.
type Look string

// The looks. The zero Look is plain text.
const (
	Good  Look = "good"
	Bad   Look = "bad"
	Doubt Look = "doubt" // nobody knows, or only a part of it went well
	Wait  Look = "wait"  // it is not over
)

var looks = map[string]Look{
	"succeeded": Good, "accepted": Good, "listed": Good, "reported": Good, "delivered": Good, "approved": Good,
	"failed": Bad, "refused": Bad, "bounced": Bad,
	"uncertain": Doubt, "partial": Doubt, "unknown": Doubt,
	"queued": Wait, "requested": Wait, "started": Wait, "deferred": Wait, "reopened": Wait, "page": Wait,
}

// OfState returns the look of the state of a request, an event, a delivery or a mandate.
func OfState[S ~string](state S) Look { return looks[string(state)] }
