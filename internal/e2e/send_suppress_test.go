package e2e

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"errand/internal/bus"
	deeds "errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/programs"
	"errand/pkg/messages"
)

// Mail bounces from an address: within ten seconds of the event, and after a restart, nothing is sent to it but what says suppress:
// false, until a person removes it. Who is erased is erased here, too.
func TestAnAddressThatMailBouncedFromIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const gone = "bounce@example.test"
		start := func() (stop func()) {
			p := b.mails()
			p.SuppressBounced = programs.Period{Duration: 30 * 24 * time.Hour}
			p.BatchSize = 2
			return b.running(p, b.poller())
		}
		stop, n := start(), 0
		sends := func(what string, state messages.State, left int, more map[string]any, to ...string) {
			t.Helper()
			n++
			m := message(fmt.Sprint("m", n), 0)
			m["to"] = to
			maps.Copy(m, more)
			b.publish("mail.send.requested", m)
			time.Sleep(3 * time.Second)
			o := decode[messages.SendOutcome](t, b.wantEnd("mail.send", string(state), fmt.Sprint("m", n)))
			ok := o.InvalidCount == left && o.Recipients == len(to)-left && (state == messages.Failed || o.Accepted == o.Recipients)
			for _, i := range o.Invalid {
				ok = ok && i.Address == gone && i.Reason == "suppressed" && i.At != nil && i.Why == "bounced: 550 5.1.1"
			}
			errorIf(t, !ok, "%s: %+v", what, o)
		}
		secrets := &bus.Secrets{Conn: b.js.Conn()}
		person, err := deeds.As("ann", "", b.js.Conn(), b.js)
		must(t, err)
		bounced := func() {
			t.Helper()
			for end := time.Now().Add(5 * time.Minute); !b.published("mail.delivery.bounced.m"+fmt.Sprint(n), 1)(); {
				fatalIf(t, time.Now().After(end), "no bounce of m%d", n)
				time.Sleep(time.Second)
			}
			time.Sleep(10 * time.Second)
		}
		sends("before", messages.Accepted, 0, nil, "a@example.test", "b@example.test", gone)
		bounced()
		sends("after the bounce", messages.Accepted, 1, nil, "a@example.test", "b@example.test", "Gone <"+gone+">")
		sends("a batch of nobody", messages.Accepted, 1, nil, gone, "a@example.test")
		sends("nobody left", messages.Failed, 1, nil, gone)
		stop()
		stop = start()
		sends("after a restart", messages.Failed, 1, nil, gone)
		sends("tried all the same", messages.Accepted, 0, map[string]any{"suppress": false}, gone, "a@example.test")
		bounced()
		must(t, person.Suppress(t.Context(), secrets.KeysOf(t.Context(), gone), true, "the mailbox is there again"))
		time.Sleep(10 * time.Second)
		sends("removed", messages.Accepted, 0, nil, gone)
		bounced()
		sends("bounced again", messages.Failed, 1, nil, gone)
		found, err := deeds.TracesOf(t.Context(), inspect.Reader{Conn: b.js.Conn(), JS: b.js}, gone, secrets, time.Now())
		must(t, err)
		must(t, person.EraseSuppressions(t.Context(), found.Suppressed, "letter 17"))
		stop()
		errorIf(t, b.stored(bus.Suppressions) != 0, "%d suppressions are stored of one who was erased", b.stored(bus.Suppressions))
		stop = start()
		sends("erased", messages.Accepted, 0, nil, gone)
		stop()
		errorIf(t, b.stored(bus.Audit) != 4, "%d records of two acts", b.stored(bus.Audit))
	})
}
