package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Objects opens recipient lists in JetStream's object store.
type Objects struct{ JetStream jetstream.JetStream }

// Open gives the object's bytes as a stream; the last read fails if they do not
// match the digest. fs.ErrNotExist: no object of that name has that digest.
func (o Objects) Open(ctx context.Context, ref messages.ObjectRef) (io.ReadCloser, error) {
	opening, done := context.WithTimeout(ctx, ackWait)
	defer done()
	info, err := o.info(opening, ref.Bucket, ref.Name)
	if err == nil && info.Opts != nil && info.Opts.Link != nil {
		info, err = o.info(opening, info.Opts.Link.Bucket, info.Opts.Link.Name)
	}
	if err != nil {
		return nil, err
	}
	if info.Digest != ref.Digest {
		return nil, fs.ErrNotExist
	}
	stream, err := o.JetStream.Stream(opening, "OBJ_"+info.Bucket)
	if err != nil {
		return nil, fmt.Errorf("bus: object store: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &object{
		chunk: func(from uint64) (*jetstream.RawStreamMsg, error) {
			return stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject("$O."+info.Bucket+".C."+info.NUID))
		},
		pause: func() bool { return retry.Pause(ctx, time.Second) },
		close: cancel, left: info.Size, next: 1, sum: sha256.New(), digest: info.Digest,
	}, nil
}

func (o Objects) info(ctx context.Context, bucket, name string) (*jetstream.ObjectInfo, error) {
	store, err := o.JetStream.ObjectStore(ctx, bucket)
	if err == nil {
		var info *jetstream.ObjectInfo
		if info, err = store.GetInfo(ctx, name); err == nil {
			return info, nil
		}
	}
	for _, none := range []error{jetstream.ErrBucketNotFound, jetstream.ErrInvalidStoreName, jetstream.ErrObjectNotFound} {
		if errors.Is(err, none) {
			return nil, fs.ErrNotExist
		}
	}
	return nil, fmt.Errorf("bus: object store: %w", err)
}

// object reads the chunks of an object one by one, each when the one before is used
// up. The library's own reader has the server send them all: a list that is read as
// slowly as its batches are sent would wait in this process's memory.
type object struct {
	chunk  func(from uint64) (*jetstream.RawStreamMsg, error)
	pause  func() bool // false when the reading has ended
	close  func()
	next   uint64 // stream sequence that the next chunk has at least
	left   uint64 // bytes in chunks not read yet
	rest   []byte // of the chunk in hand
	sum    hash.Hash
	digest string
}

// Read gives jetstream.ErrDigestMismatch at the end of bytes that are not the object's.
func (o *object) Read(p []byte) (int, error) {
	for len(o.rest) == 0 {
		if o.left == 0 {
			if "SHA-256="+base64.URLEncoding.EncodeToString(o.sum.Sum(nil)) != o.digest {
				return 0, jetstream.ErrDigestMismatch
			}
			return 0, io.EOF
		}
		m, err := o.fetch()
		if err != nil {
			return 0, fmt.Errorf("bus: read object: %w", err)
		}
		o.rest, o.next = m.Data, m.Sequence+1
		o.left -= min(o.left, uint64(len(m.Data)))
		_, _ = o.sum.Write(m.Data) // a hash takes all
	}
	n := copy(p, o.rest)
	o.rest = o.rest[n:]
	return n, nil
}

// patience is how long a server that does not answer is asked again for a chunk.
const patience = 30 * time.Second

func (o *object) fetch() (*jetstream.RawStreamMsg, error) {
	for end := time.Now().Add(patience); ; {
		m, err := o.chunk(o.next)
		if err == nil || errors.Is(err, jetstream.ErrMsgNotFound) || !time.Now().Before(end) || !o.pause() {
			return m, err
		}
	}
}

// Close ends the reading.
func (o *object) Close() error {
	o.close()
	return nil
}
