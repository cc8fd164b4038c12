package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/messages"
)

// Objects opens recipient lists in JetStream's object store.
type Objects struct{ JetStream jetstream.JetStream }

// Open gives the object's bytes as a stream; the last read fails if they do not
// match the digest. fs.ErrNotExist: no object of that name has that digest.
func (o Objects) Open(ctx context.Context, ref messages.ObjectRef) (io.ReadCloser, error) {
	bucket, err := o.JetStream.ObjectStore(ctx, ref.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrInvalidStoreName) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("bus: object store: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	guard := time.AfterFunc(ackWait, cancel) // for opening; reading has patient's time
	got, err := bucket.Get(patient{ctx}, ref.Name)
	guard.Stop()
	if err != nil {
		cancel()
	}
	object := opened{got, cancel}
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("bus: object store: %w", err)
	}
	info, err := object.Info()
	if err != nil || info.Digest != ref.Digest {
		_ = object.Close()
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	return object, nil
}

// patient gives each read of an object its own time: without a deadline the library
// ends the reading of the whole object five seconds after it was opened.
type patient struct{ context.Context }

// Deadline is never near.
func (patient) Deadline() (time.Time, bool) { return time.Now().Add(30 * time.Second), true }

// opened ends its context when it is closed.
type opened struct {
	jetstream.ObjectResult
	cancel context.CancelFunc
}

// Close ends the reading.
func (o opened) Close() error {
	defer o.cancel()
	return o.ObjectResult.Close()
}
