package transactions

import (
	"context"
	"fmt"
	"strings"

	"errand/internal/lists/sweep"
	"errand/internal/mandates"
	"errand/pkg/messages"
)

// application names an application of a request; zero: two were reported, which is enough.
type application struct {
	key  uint64
	kind string
}

// maxApplications is for how many requests the first application is remembered.
const maxApplications = 1000

// compare reports a request that has another application than this one, whose event is not stored yet.
func (l *List) compare(ctx context.Context, request string, r Record) error {
	first, known := l.applications[request]
	if !known {
		b, err := l.lastApplication(ctx, request)
		if err != nil {
			return err
		}
		first = application{r.key, r.kind}
		if id, ok := sweep.ParseID(b.EventID); ok {
			first.key, _ = split(id)
			first.kind = strings.ToLower(mandates.ReadRecord(b.Transaction).Type)
		}
	}
	if len(l.applications) >= maxApplications {
		clear(l.applications)
	}
	// A change or the end of a mandate is an application of another kind.
	if first.key != r.key && first.kind == r.kind && first != (application{}) {
		l.Duplicate(request)
		first = application{}
	}
	l.applications[request] = first
	return nil
}

// lastApplication is the last event about an application of a request, as far as it can be read.
func (l *List) lastApplication(ctx context.Context, request string) (b messages.TransactionBody, err error) {
	last, err := l.Last(ctx, messages.Application, messages.Application.Subject("*", request))
	if err != nil {
		return b, fmt.Errorf("transactions: read a request's last application: %w", err)
	}
	if messages.DecodeEvent(last.Body, &b) != nil {
		return messages.TransactionBody{}, nil
	}
	return b, nil
}
