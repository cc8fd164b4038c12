package bus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Ack says where a message was stored.
type Ack struct {
	Stream    string `json:"stream"`
	Sequence  uint64 `json:"seq"`
	Duplicate bool   `json:"duplicate"` // it was stored before, by its Nats-Msg-Id
}

// ErrNoAck means that it is not known whether the message was stored.
var ErrNoAck = errors.New("nats: no acknowledgement")

// ErrSetBack means that a message was stored where the stream had messages already: those are gone.
var ErrSetBack = errors.New("nats: the stream is an older copy of itself")

var (
	// errBroken is ErrNoAck for what was on its way when the connection broke.
	errBroken = fmt.Errorf("%w: the connection broke", ErrNoAck)
	// errNoStream is ErrNoAck where no stream takes the subject.
	errNoStream = fmt.Errorf("%w: %w", ErrNoAck, nats.ErrNoResponders)
)

// readAck reads the answer to a write, {"stream":"known","seq":1} without a JSON decoder, which takes ten times as long.
// Errors: ErrNoAck when it says nothing, or the server's *jetstream.APIError.
func readAck(m *nats.Msg, known string) (Ack, error) {
	if rest, ok := bytes.CutPrefix(m.Data, []byte(`{"stream":"`)); ok && len(rest) > len(known) && string(rest[:len(known)]) == known {
		rest, ok = bytes.CutPrefix(rest[len(known):], []byte(`","seq":`))
		digits, ends := bytes.CutSuffix(rest, []byte("}"))
		if ok && ends && len(digits) > 0 && digits[0] != '0' {
			if seq, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
				return Ack{Stream: known, Sequence: seq}, nil
			}
		}
	}
	var a struct {
		Ack
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &a); {
	case len(m.Data) == 0 && m.Header.Get("Status") == "503":
		return Ack{}, errNoStream
	case err == nil && a.Error != nil:
		return Ack{}, a.Error
	case err != nil, a.Stream == "", a.Sequence == 0:
		return Ack{}, ErrNoAck
	}
	return a.Ack, nil
}

// isRefusal reports whether the server answered that it does not store the message.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok
}

// codeOf is JetStream's code of an error; 0 means that the error has none.
func codeOf(err error) jetstream.ErrorCode {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.ErrorCode
	}
	return 0
}

// IsConflict reports whether a fenced write was refused because of another one.
func IsConflict(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequence || IsInFlight(err)
}

// IsInFlight reports whether a cluster refused a fenced write because another one under the same fence is in flight.
func IsInFlight(err error) bool {
	return codeOf(err) == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// What the server says of a message that it never takes.
const (
	errCodeMessageTooLarge = 10054
	errCodeHeaderTooLarge  = 10097
)

// tooLarge reports whether the server never takes a message of that size.
func tooLarge(err error) bool {
	code := codeOf(err)
	return errors.Is(err, nats.ErrMaxPayload) || code == errCodeMessageTooLarge || code == errCodeHeaderTooLarge
}

// IsFinal reports whether the same write would always fail: the message is too large, its subject or a header's name is
// not valid, or the connection was closed. After any other answer, unknown ones too, the write may succeed later.
func IsFinal(err error) bool {
	return tooLarge(err) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, nats.ErrBadHeaderMsg) ||
		errors.Is(err, nats.ErrConnectionClosed)
}
