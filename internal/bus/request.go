package bus

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Request is one delivery of a request by its queue.
type Request struct {
	Subject   string
	Header    nats.Header
	Data      []byte
	Stream    string
	Consumer  string
	Sequence  uint64 // in the stream
	Delivered uint64 // how often, with this delivery
	Published time.Time
	Acker
}

// Acker answers the queue about a delivery.
type Acker interface {
	Ack() error
	NakWithDelay(time.Duration) error
	InProgress() error
}

// requestOf reads a message; nil if no queue delivered it.
func requestOf(m *nats.Msg) *Request {
	meta, err := m.Metadata()
	if err != nil {
		return nil
	}
	return &Request{Subject: m.Subject, Header: m.Header, Data: m.Data, Stream: meta.Stream, Consumer: meta.Consumer,
		Sequence: meta.Sequence.Stream, Delivered: meta.NumDelivered, Published: meta.Timestamp, Acker: (*acker)(m)}
}

type acker nats.Msg

func (a *acker) Ack() error                         { return (*nats.Msg)(a).Ack() }
func (a *acker) NakWithDelay(d time.Duration) error { return (*nats.Msg)(a).NakWithDelay(d) }
func (a *acker) InProgress() error                  { return (*nats.Msg)(a).InProgress() }
