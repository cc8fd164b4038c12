package bus

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"regexp"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Objects opens recipient lists in JetStream's object store.
type Objects struct{ Conn *nats.Conn }

// Open reads an object of so many bytes; the last read fails if the digest does not match. fs.ErrNotExist: the leader has
// none with that digest.
func (o Objects) Open(ctx context.Context, ref messages.ObjectRef) (io.Reader, int64, error) {
	info, err := o.info(ctx, ref.Bucket, ref.Name)
	if err == nil && info.Opts != nil && info.Opts.Link != nil {
		info, err = o.info(ctx, info.Opts.Link.Bucket, info.Opts.Link.Name)
	}
	if err != nil {
		return nil, 0, err
	}
	if info.Digest != ref.Digest {
		return nil, 0, fs.ErrNotExist
	}
	return &object{
		chunk: func(from uint64) (*Message, error) {
			what := map[string]any{"seq": from, "next_by_subj": "$O." + info.Bucket + ".C." + info.NUID}
			for end := time.Now().Add(retry.ObjectAnswer); ; {
				m, err := anywhere(ctx, o.Conn, "OBJ_"+info.Bucket, what)
				switch {
				case err == nil && m == nil:
					return nil, jetstream.ErrMsgNotFound
				case err == nil || !time.Now().Before(end) || !retry.Pause(ctx, retry.ObjectRead):
					return m, err
				}
			}
		},
		left: info.Size, next: 1, sum: sha256.New(), digest: info.Digest,
	}, int64(min(info.Size, math.MaxInt64)), nil
}

// bucketName is a valid name of a bucket; a link may have anything there.
var bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// info reads an object's description from the bucket's leader: any other replica may not have it yet.
func (o Objects) info(ctx context.Context, bucket, name string) (info jetstream.ObjectInfo, err error) {
	if !bucketName.MatchString(bucket) {
		return info, fs.ErrNotExist
	}
	m, err := fromLeader(ctx, o.Conn, "OBJ_"+bucket, lastOf("$O."+bucket+".M."+base64.URLEncoding.EncodeToString([]byte(name))))
	if err == nil && m != nil && json.Unmarshal(m.Data, &info) != nil {
		err = jetstream.ErrBadObjectMeta
	}
	switch {
	case codeOf(err) == jetstream.JSErrCodeStreamNotFound, err == nil && (m == nil || info.Deleted):
		return info, fs.ErrNotExist
	case err != nil:
		return info, fmt.Errorf("bus: object store: %w", err)
	}
	return info, nil
}

// object reads the chunks of an object one by one, each when the one before is used up. The library lets the server send
// them all: a list that is read as slowly as its batches are sent would wait in memory.
type object struct {
	chunk  func(from uint64) (*Message, error)
	next   uint64 // sequence that the next chunk has at least
	left   uint64 // bytes in chunks not read yet
	rest   []byte // of the last chunk
	sum    hash.Hash
	digest string
}

// Read returns jetstream.ErrDigestMismatch at the end of bytes that do not match the digest.
func (o *object) Read(p []byte) (int, error) {
	for len(o.rest) == 0 {
		if o.left == 0 {
			if "SHA-256="+base64.URLEncoding.EncodeToString(o.sum.Sum(nil)) != o.digest {
				return 0, jetstream.ErrDigestMismatch
			}
			return 0, io.EOF
		}
		m, err := o.chunk(o.next)
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
