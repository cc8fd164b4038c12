package bus_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
	"errand/internal/sandbox/devkit/devtest"
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
			object, _, err := bus.Objects{Conn: nc}.Open(t.Context(), c.ref)
			if !errors.Is(err, c.opened) {
				t.Fatalf("open: got %v, want %v", err, c.opened)
			}
			if err != nil {
				return
			}
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

// A replica that lags behind, and answers direct gets, does not have the object yet, nor
// all of its chunks. What is not there only the stream's leader can say.
func TestAListThatAReplicaLacksIsAskedOfTheLeader(t *testing.T) {
	// It has no JetStream: that is played here.
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	content := []byte("a@example.test\nb@example.test\n")
	meta, err := json.Marshal(jetstream.ObjectInfo{ObjectMeta: jetstream.ObjectMeta{Name: "list"}, Bucket: "lists", NUID: "n1",
		Size: uint64(len(content)), Chunks: 1, Digest: digest(content)})
	if err != nil {
		t.Fatal(err)
	}
	play := func(subject string, answer func(m *nats.Msg) *nats.Msg) {
		if _, err := nc.Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(answer(m)) }); err != nil {
			t.Fatal(err)
		}
	}
	play("$JS.API.STREAM.INFO.OBJ_lists", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Data: []byte(
			`{"config":{"name":"OBJ_lists","subjects":["$O.lists.C.>","$O.lists.M.>"],"allow_direct":true},"state":{}}`)}
	})
	play("$JS.API.DIRECT.GET.OBJ_lists.>", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}}
	})
	play("$JS.API.DIRECT.GET.OBJ_lists", func(*nats.Msg) *nats.Msg {
		return &nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}}
	})
	play("$JS.API.STREAM.MSG.GET.OBJ_lists", func(m *nats.Msg) *nats.Msg {
		found := map[string]any{"seq": 2, "time": time.Now(), "subject": "$O.lists.M.bGlzdA==", "data": meta}
		if strings.Contains(string(m.Data), "$O.lists.C.n1") {
			found["seq"], found["subject"], found["data"] = 1, "$O.lists.C.n1", content
		} else if !strings.Contains(string(m.Data), "$O.lists.M.bGlzdA==") {
			return &nats.Msg{Data: []byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`)}
		}
		b, _ := json.Marshal(map[string]any{"message": found})
		return &nats.Msg{Data: b}
	})
	object, size, err := bus.Objects{Conn: nc}.Open(t.Context(), messages.ObjectRef{Bucket: "lists", Name: "list", Digest: digest(content)})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if got, err := io.ReadAll(object); err != nil || !bytes.Equal(got, content) || size != int64(len(content)) {
		t.Errorf("read %q, %v", got, err)
	}
	other := messages.ObjectRef{Bucket: "lists", Name: "other", Digest: digest(content)}
	if _, _, err := (bus.Objects{Conn: nc}).Open(t.Context(), other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another name: %v, want fs.ErrNotExist", err)
	}
}
