package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The example of docs/use/publish.md, with a NATS client in place of the tool `nats`.
func TestTheDocumentedListIsSentTo(t *testing.T) {
	document, err := os.ReadFile("../../docs/use/publish.md")
	must(t, err)
	_, section, _ := strings.Cut(string(document), "\n## Long lists: to_object\n")
	list := between(t, section, "cat > recipients.txt <<'END'\n", "END\n")
	request := between(t, section, "```json\n", "```")
	inBubble(t, func(t *testing.T, b *bubble) {
		bucket, err := b.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "lists", TTL: 336 * time.Hour})
		must(t, err)
		info, err := bucket.PutString(t.Context(), "news-2026-01", list)
		if err != nil || !strings.Contains(request, `"digest": "`+info.Digest+`"`) {
			t.Fatalf("the digest of the list is %s, %v; the document's request is %s", info.Digest, err, request)
		}
		b.publish("mail.send.requested", []byte(request))
		b.run(b.mails(), time.Minute, b.published("mail.send.accepted.send-news-2026-01", 1))
		if e := b.wantOne("mail.send.accepted.send-news-2026-01"); number(e.Body["accepted"]) != 2 {
			t.Errorf("body: %s", e.Raw)
		}
		if o := b.oracle(); o.Mail.Recipients != 2 {
			t.Errorf("oracle: %+v", o.Mail)
		}
	})
}

// between is what stands between two texts.
func between(t *testing.T, text, before, after string) string {
	t.Helper()
	_, text, begins := strings.Cut(text, before)
	text, _, ends := strings.Cut(text, after)
	if !begins || !ends {
		t.Fatalf("nothing stands between %q and %q", before, after)
	}
	return text
}
