package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
)

// A reader is a separate account with copies (mirrors) of the streams of events. All that it can ask of errand's account is
// to be sent them again. The consumers that send them are made there: a user who may make them can have the server publish
// anywhere.
//
//	errand's account                                   the reader's account
//	MAIL_EVENTS ─ consumer <reader> ─ events.<reader>.MAIL_EVENTS ─► mirror MAIL_EVENTS ─ the reader's consumers

// Readable are the streams that readers have copies of.
var Readable = []string{MandateEvents, MailEvents, MailDeliveries}

// readerName is a valid name of a reader: one token of a subject.
var readerName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// ValidReader reports whether a reader may have a name.
func ValidReader(name string) bool { return readerName.MatchString(name) }

// externalAPI is where a reader's account has what it may ask of errand's JetStream.
const externalAPI = "ERRAND.API"

func deliverTo(reader, stream string) string { return "events." + reader + "." + stream }

// feed is the consumer that sends a stream's events to a reader, without what programs leave there for one another.
func feed(reader, stream string) jetstream.ConsumerConfig {
	c := jetstream.ConsumerConfig{Durable: reader, Description: "errand: sends the events of " + stream + " to the account of " + reader,
		DeliverSubject: deliverTo(reader, stream), AckPolicy: jetstream.AckFlowControlPolicy, FlowControl: true,
		IdleHeartbeat: retry.FeedHeartbeat, MaxDeliver: -1, MaxAckPending: 1000}
	if stream == MailDeliveries {
		c.FilterSubjects = []string{"mail.delivery.*.*", "mail.log.watermark"}
	}
	return c
}

// The settings of a feed that errand decides, and among them those that a server cannot change. A feed that is made again
// starts at the first event, and an existing copy would miss what was stored in between.
var (
	feedFields      = []string{"Description", "FilterSubject", "FilterSubjects", "MaxDeliver", "MaxAckPending", "HeadersOnly"}
	feedFixedFields = []string{"AckPolicy", "FlowControl", "IdleHeartbeat", "DeliverPolicy", "ReplayPolicy"}
)

// PlanReaders compares the feeds in errand's account with those there should be. The error names one that cannot be changed.
func PlanReaders(ctx context.Context, js jetstream.JetStream, readers []string) (plan []Change, err error) {
	for _, reader := range readers {
		for _, stream := range Readable {
			change, want, fields := Change{Kind: "consumer", Name: reader + " on " + stream}, feed(reader, stream), feedFields
			var have jetstream.ConsumerConfig
			switch is, err := js.PushConsumer(ctx, stream, reader); {
			case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
				change.Create, fields = true, []string{"DeliverSubject", "FilterSubjects"}
			case err != nil:
				return nil, fmt.Errorf("consumer %s: %w", change.Name, err)
			default:
				if have = is.CachedInfo().Config; have.DeliverSubject != want.DeliverSubject {
					return nil, fmt.Errorf("consumer %s sends to %s and not to a reader: choose another name", change.Name, have.DeliverSubject)
				}
				if fixed := diff(have, want, feedFixedFields); len(fixed) > 0 {
					return nil, fmt.Errorf("consumer %s has %s %s, which must be %s and cannot be changed: "+
						"delete it (`nats consumer rm %s %s` as an administrator), run this again, and then make the reader's copy again",
						change.Name, fixed[0].Name, fixed[0].Have, fixed[0].Want, stream, reader)
				}
			}
			change, _ = planned(js, change, have, want, fields, on(stream, js.CreatePushConsumer), on(stream, js.UpdatePushConsumer))
			plan = append(plan, change)
		}
	}
	return needed(plan), nil
}

// PlanCopies compares the copies in a reader's account with those there should be.
func PlanCopies(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, reader string, streams []string, l Limits) (
	plan []Change, err error,
) {
	made := l.or(Defaults)
	if l.MaxBytes == 0 {
		if made.MaxBytes, err = share(ctx, js, len(Readable)*made.Replicas); err != nil {
			return nil, err
		}
	}
	for _, name := range streams {
		want := made.copyOf(reader, name)
		s, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			change := planStream(js, nil, want, copyFields)
			create := change.apply
			change.apply = func(ctx context.Context) error {
				if err := startOver(ctx, nc, reader, name); err != nil {
					return err
				}
				return create(ctx)
			}
			plan = append(plan, change)
			continue
		case err != nil:
			return nil, fmt.Errorf("stream %s: %w", name, err)
		case s.CachedInfo().Config.Mirror == nil:
			return nil, fmt.Errorf("stream %s is not a copy: is this the reader's account, and NATS_USER its user?", name)
		case origin(s.CachedInfo().Config) != origin(want):
			return nil, fmt.Errorf("stream %s is a copy of %s and not of %s, which cannot be changed: is the reader's name right? "+
				"If it is, delete the stream and run this again", name, origin(s.CachedInfo().Config), origin(want))
		}
		plan = append(plan, planStream(js, s.CachedInfo(), l.keep(s.CachedInfo().Config, want), copyFields))
	}
	return needed(plan), nil
}

// copyFields are the settings of a copy that errand decides.
var copyFields = []string{"Replicas", "MaxAge", "MaxBytes", "MaxMsgSize", "Discard", "AllowDirect", "Description"}

// origin says what a stream is a copy of, and how it gets there.
func origin(c jetstream.StreamConfig) string {
	from := c.Mirror.Name
	if to := c.Mirror.Consumer; to != nil {
		from += ", sent to " + to.DeliverSubject
	}
	if c.Mirror.External != nil {
		from += ", over " + c.Mirror.External.APIPrefix
	}
	return from
}

// copyOf is a reader's copy of a stream. A full one drops its oldest events: errand's stream has them.
func (l Limits) copyOf(reader, stream string) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: stream, Description: "errand: a copy of its events, for " + reader, Storage: jetstream.FileStorage,
		Replicas: l.Replicas, MaxAge: l.MaxAge, MaxBytes: l.MaxBytes, MaxMsgSize: -1, Discard: jetstream.DiscardOld, AllowDirect: true,
		Mirror: &jetstream.StreamSource{Name: stream, External: &jetstream.ExternalStream{APIPrefix: externalAPI},
			Consumer: &jetstream.StreamConsumerSource{Name: reader, DeliverSubject: deliverTo(reader, stream)}}}
}

// startOver asks errand's account to send a stream from its first event on.
func startOver(ctx context.Context, nc *nats.Conn, reader, stream string) error {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	m, err := ask(ctx, nc, externalAPI+".CONSUMER.RESET."+stream+"."+reader, map[string]any{"seq": 1})
	silent := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil // the import exists, the consumer does not
	if silent || errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("no consumer sends %s to reader %s: run `errand provision --reader %s` in errand's account, "+
			"and check that this account imports what a reader needs", stream, reader, reader)
	}
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		return fmt.Errorf("ask for %s from its first event on: %w", stream, err)
	}
	return nil
}

// share is how many bytes each of n copies may have; Unlimited without a limit of the account. A twentieth is for consumers.
func share(ctx context.Context, js jetstream.JetStream, n int) (int64, error) {
	info, err := js.AccountInfo(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("nats: the account's limits: %w", err)
	case info.Limits.MaxStore <= 0:
		return Unlimited, nil
	}
	return info.Limits.MaxStore / 20 * 19 / int64(n), nil
}
