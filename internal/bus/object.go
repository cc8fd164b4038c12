package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

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
	object, err := bucket.Get(ctx, ref.Name)
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
