package bus

import (
	"context"

	"github.com/nats-io/nats.go"
)

// For tests.
var (
	ReadAck = readAck
	Copied  = copied
	Again   = Schedules.again

	ErrLeaderless = errLeaderless
)

// SubjectAt, the subject of the message that anywhere finds at a sequence, is for tests.
func SubjectAt(ctx context.Context, nc *nats.Conn, stream string, sequence uint64) (string, error) {
	got, err := anywhere(ctx, nc, stream, map[string]any{"seq": sequence})
	if err != nil || got == nil {
		return "", noStream(stream, err)
	}
	return got.Subject, nil
}
