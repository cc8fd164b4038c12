package messages

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

// FuzzAppendedEvents: what is appended is what encoding/json writes.
func FuzzAppendedEvents(f *testing.F) {
	f.Add("r1", "DD-1", "f", "2026-01-02", `{ "url" : "https://example.test/?a=1&b=<2>" }`, "9", int64(1_700_000_000_123), 1, true)
	f.Add("", "", "", "", "", "", int64(0), -1, false)
	f.Add("\xff\u2028<&>", "a\"\\\n\u00e9\x7f", "\x00", "x", `{"a":`, "12", int64(-1), 1<<40, true)
	f.Add("r", "o", "f", "d", "null", "09", int64(1<<50), 0, false)
	f.Fuzz(func(t *testing.T, id, order, print, date, enrollment, frequency string, at int64, attempt int, flag bool) {
		when := Time{time.UnixMilli(at)}
		common := Common{RequestID: id, At: when, Attempt: attempt, Abridged: flag}
		started := EnrollStarted{Common: common, Deadline: Time{when.Add(time.Minute)}, Fingerprint: print, OrderNumber: order,
			Defaults: Defaults{MaxFrequency: json.Number(frequency), EffectiveDate: date}, AfterUnknown: flag}
		succeeded := EnrollSucceeded{Common: common, APIVersion: date, OrderNumber: order, Enrollment: json.RawMessage(enrollment),
			LinkExpiredAt: frequency, AfterUnknown: flag, Fingerprint: print}
		if enrollment == "" {
			succeeded.Enrollment = nil
		}
		send := SendStarted{Common: common, Deadline: Time{when.Add(time.Minute)}, Fingerprint: print, Recipients: attempt, Batches: len(date),
			BatchSize: len(id)}
		sent := SentBody{Common: common, Batch: attempt, First: len(id), Count: -attempt, From: Key(at), Begin: when,
			Until: Time{when.Add(time.Second)}, Keys: []byte(order)}
		secret := sent
		if secret.Secret = (&SecretKeys{ID: print, Keys: []byte(order)}); flag {
			secret.Keys, secret.Secret.Keys = nil, nil
		}
		type plainStarted EnrollStarted
		type plainSucceeded EnrollSucceeded
		type plainSend SendStarted
		type plainSent SentBody
		for what, c := range map[string]struct {
			body  Body
			plain any
		}{"started": {&started, plainStarted(started)}, "succeeded": {&succeeded, plainSucceeded(succeeded)}, "send": {&send, plainSend(send)},
			"sent": {&sent, plainSent(sent)}, "sent with a secret": {&secret, plainSent(secret)}} {
			want, bad := marshal(c.plain)
			got, err := encodeBody(c.body)
			if (err != nil) != (bad != nil) || bad == nil && !bytes.Equal(got, want) {
				t.Errorf("%s: got %s, %v, want %s, %v", what, got, err, want, bad)
			}
		}
	})
}
