package transactions

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"errand/internal/mandates"
	"errand/pkg/messages"
)

// applied is an application as its event has it.
type applied struct{ event, status, kind string }

func appliedBy(b *messages.TransactionBody) applied {
	return applied{b.EventID, b.Status, strings.ToLower(mandates.ReadRecord(b.Transaction).Type)}
}

// maxApplied is for how many requests the first application is remembered.
const maxApplied = 1000

// compare reports a request that has another application than this one, whose event is not stored yet.
func (l *List) compare(ctx context.Context, request string, r Record, event *messages.TransactionBody) error {
	this := appliedBy(event)
	first, known := l.applied[request]
	if !known {
		last, err := l.Last(ctx, messages.Application, messages.Application.Subject("*", request))
		if err != nil {
			return fmt.Errorf("transactions: read a request's last application: %w", err)
		}
		var b messages.TransactionBody
		if first = this; last.Sequence > 0 && messages.DecodeEvent(last.Body, &b) == nil && b.EventID != "" {
			first = appliedBy(&b)
		}
	}
	if len(l.applied) >= maxApplied {
		clear(l.applied)
	}
	// A change or the end of a mandate is an application of another kind.
	if id := r.id(messages.State(first.status)); first.event != "" && hex.EncodeToString(id[:]) != first.event && first.kind == this.kind {
		l.Duplicate(request)
		first = applied{} // one report is enough
	}
	l.applied[request] = first
	return nil
}
