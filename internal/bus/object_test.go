package bus_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/devkit/devtest"
	"errand/pkg/messages"
)

func TestAnObjectIsReadWholeOrNotAtAll(t *testing.T) {
	_, nc := devtest.Provisioned(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists"})
	if err != nil {
		t.Fatal(err)
	}
	list := []byte(strings.Repeat("somebody@example.test\n", 20_000)) // four chunks
	for name, content := range map[string][]byte{"list": list, "gap": list, "tampered": list, "empty": {}} {
		if _, err := store.PutBytes(t.Context(), name, content); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := store.GetInfo(t.Context(), "list")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.AddLink(t.Context(), "link", whole); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "OBJ_lists")
	if err != nil {
		t.Fatal(err)
	}
	loseSecondChunk(t, store, stream, "gap")
	m := loseSecondChunk(t, store, stream, "tampered")
	if _, err := js.Publish(t.Context(), m.Subject, bytes.ToUpper(m.Data)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		ref          messages.ObjectRef
		opened, read error
		content      []byte
	}{
		"whole":          {messages.ObjectRef{Bucket: "lists", Name: "list", Digest: digest(list)}, nil, nil, list},
		"by a link":      {messages.ObjectRef{Bucket: "lists", Name: "link", Digest: digest(list)}, nil, nil, list},
		"empty":          {messages.ObjectRef{Bucket: "lists", Name: "empty", Digest: digest(nil)}, nil, nil, nil},
		"another digest": {messages.ObjectRef{Bucket: "lists", Name: "list", Digest: digest(nil)}, fs.ErrNotExist, nil, nil},
		"no object":      {messages.ObjectRef{Bucket: "lists", Name: "other", Digest: digest(list)}, fs.ErrNotExist, nil, nil},
		"no bucket":      {messages.ObjectRef{Bucket: "others", Name: "list", Digest: digest(list)}, fs.ErrNotExist, nil, nil},
		"a chunk lost":   {messages.ObjectRef{Bucket: "lists", Name: "gap", Digest: digest(list)}, nil, jetstream.ErrMsgNotFound, nil},
		"a chunk false":  {messages.ObjectRef{Bucket: "lists", Name: "tampered", Digest: digest(list)}, nil, jetstream.ErrDigestMismatch, nil},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := bus.Objects{JetStream: js}.Open(t.Context(), c.ref)
			if !errors.Is(err, c.opened) {
				t.Fatalf("open: got %v, want %v", err, c.opened)
			}
			if err != nil {
				return
			}
			defer object.Close()
			content, err := io.ReadAll(object)
			if !errors.Is(err, c.read) || err == nil && !bytes.Equal(content, c.content) {
				t.Errorf("read %d bytes, %v; want %d, %v", len(content), err, len(c.content), c.read)
			}
		})
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "SHA-256=" + base64.URLEncoding.EncodeToString(sum[:])
}

func loseSecondChunk(t *testing.T, store jetstream.ObjectStore, stream jetstream.Stream, name string) *jetstream.RawStreamMsg {
	t.Helper()
	info, err := store.GetInfo(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 1, jetstream.WithGetMsgSubject("$O.lists.C."+info.NUID))
	if err == nil {
		m, err = stream.GetMsg(t.Context(), m.Sequence+1, jetstream.WithGetMsgSubject(m.Subject))
	}
	if err == nil {
		err = stream.DeleteMsg(t.Context(), m.Sequence)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
