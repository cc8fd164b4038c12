package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Change is one difference between the topology and what the servers have.
type Change struct {
	Kind        string // "stream" or "consumer"
	Name        string
	Create      bool
	Fields      []Field // what differs, sorted by name
	Destructive bool    // may drop messages or make programs fail
	apply       func(context.Context) error
}

// Field is one setting that differs.
type Field struct{ Name, Have, Want string }

// String shows a change as a diff, a line a setting.
func (c Change) String() string {
	var b strings.Builder
	sign := "~"
	if c.Create {
		sign = "+"
	}
	fmt.Fprintf(&b, "%s %s %s", sign, c.Kind, c.Name)
	if c.Destructive {
		b.WriteString("  (destructive)")
	}
	for _, f := range c.Fields {
		if c.Create {
			fmt.Fprintf(&b, "\n    %s: %s", f.Name, f.Want)
		} else {
			fmt.Fprintf(&b, "\n    %s: %s -> %s", f.Name, f.Have, f.Want)
		}
	}
	return b.String()
}

// Plan compares the servers with the topology. Settings that errand does not care
// about stay as the operator left them.
func Plan(ctx context.Context, js jetstream.JetStream, l Limits) ([]Change, error) {
	var plan []Change
	for _, want := range Streams(l) {
		c, err := planStream(ctx, js, want)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c...)
	}
	for _, q := range Queues() {
		c, err := planQueue(ctx, js, q, q.Config(l))
		if err != nil {
			return nil, err
		}
		plan = append(plan, c...)
	}
	return plan, nil
}

// Apply makes the changes in order. Without force it refuses them all when one is destructive.
func Apply(ctx context.Context, plan []Change, force bool, done func(Change)) error {
	for _, c := range plan {
		if c.Destructive && !force {
			return fmt.Errorf("%s %s: the change may drop messages; nothing was changed: say --force if that is meant", c.Kind, c.Name)
		}
	}
	for _, c := range plan {
		if err := c.apply(ctx); err != nil {
			return fmt.Errorf("%s %s: %w", c.Kind, c.Name, err)
		}
		done(c)
	}
	return nil
}

func planStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) ([]Change, error) {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return []Change{{Kind: "stream", Name: want.Name, Create: true, Fields: diff(jetstream.StreamConfig{}, want, streamFields),
			apply: func(ctx context.Context) error { _, err := js.CreateStream(ctx, want); return err }}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	fields := diff(have, want, streamFields)
	if len(fields) == 0 {
		return nil, nil
	}
	merged := merge(have, want, streamFields)
	return []Change{{Kind: "stream", Name: want.Name, Fields: fields,
		Destructive: destructive(have, want),
		apply:       func(ctx context.Context) error { _, err := js.UpdateStream(ctx, merged); return err }}}, nil
}

// destructive tells whether an update can drop messages that are kept now, or is
// one that the server refuses because it would have to.
func destructive(have, want jetstream.StreamConfig) bool {
	shorter := want.MaxAge != 0 && (have.MaxAge == 0 || want.MaxAge < have.MaxAge)
	fewer := want.Replicas < have.Replicas
	narrower := slices.ContainsFunc(have.Subjects, func(s string) bool { return !slices.Contains(want.Subjects, s) })
	return shorter || fewer || narrower || have.Retention != want.Retention || have.Storage != want.Storage
}

func planQueue(ctx context.Context, js jetstream.JetStream, q Queue, want jetstream.ConsumerConfig) ([]Change, error) {
	create := Change{Kind: "consumer", Name: q.Name, Create: true, Fields: diff(jetstream.ConsumerConfig{}, want, consumerFields),
		apply: func(ctx context.Context) error { _, err := js.CreateConsumer(ctx, q.Stream, want); return err }}
	c, err := js.Consumer(ctx, q.Stream, q.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return []Change{create}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", q.Name, err)
	}
	have := c.CachedInfo().Config
	fields := diff(have, want, consumerFields)
	if len(fields) == 0 {
		return nil, nil
	}
	merged := merge(have, want, consumerFields)
	return []Change{{Kind: "consumer", Name: q.Name, Fields: fields,
		Destructive: have.AckPolicy != want.AckPolicy || have.FilterSubject != want.FilterSubject,
		apply:       func(ctx context.Context) error { _, err := js.UpdateConsumer(ctx, q.Stream, merged); return err }}}, nil
}

// The settings that errand decides; all others are the operator's.
var (
	streamFields   = []string{"Subjects", "Retention", "Storage", "Replicas", "Discard", "MaxAge", "MaxMsgSize", "Duplicates", "DenyDelete", "AllowDirect", "AllowAtomicPublish", "AllowMsgSchedules", "AllowMsgTTL", "AllowRollup"}
	consumerFields = []string{"FilterSubject", "AckPolicy", "AckWait", "MaxDeliver", "MaxAckPending"}
)

func diff[T any](have, want T, names []string) []Field {
	var out []Field
	h, w := reflect.ValueOf(have), reflect.ValueOf(want)
	for _, n := range names {
		a, b := h.FieldByName(n).Interface(), w.FieldByName(n).Interface()
		if !reflect.DeepEqual(a, b) {
			out = append(out, Field{Name: n, Have: show(a), Want: show(b)})
		}
	}
	return out
}

func merge[T any](have, want T, names []string) T {
	h, w := reflect.ValueOf(&have).Elem(), reflect.ValueOf(want)
	for _, n := range names {
		h.FieldByName(n).Set(w.FieldByName(n))
	}
	return have
}

func show(v any) string {
	if s, ok := v.(fmt.Stringer); ok {
		return s.String()
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a subject's > stays one
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// unsuited tells what keeps a stream from holding what is written to it, or "".
func unsuited(have jetstream.StreamConfig) string {
	for _, want := range Streams(Limits{}) {
		if want.Name != have.Name {
			continue
		}
		for _, subject := range want.Subjects {
			if !slices.Contains(have.Subjects, subject) {
				return "does not take " + subject
			}
		}
		if want.AllowDirect && !have.AllowDirect {
			return "does not allow direct get"
		}
	}
	return ""
}

// Check tells whether what a program needs is there and suits it, and gives its
// consumers by name. The error says what to run.
func Check(ctx context.Context, js jetstream.JetStream, queues []Queue, streams ...string) (map[string]jetstream.Consumer, error) {
	var missing []string
	found := map[string]jetstream.Consumer{}
	for _, q := range queues {
		c, err := js.Consumer(ctx, q.Stream, q.Name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, "consumer "+q.Name+" on stream "+q.Stream)
			continue
		case err != nil:
			return nil, fmt.Errorf("consumer %s: %w", q.Name, err)
		}
		got := c.CachedInfo().Config
		if fields := diff(got, q.Config(Limits{AckWait: got.AckWait}), []string{"FilterSubject", "AckPolicy", "MaxDeliver"}); len(fields) > 0 {
			return nil, fmt.Errorf("consumer %s does not suit: %s is %s, must be %s: run `errand provision`", q.Name, fields[0].Name, fields[0].Have, fields[0].Want)
		}
		found[q.Name] = c
	}
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, "stream "+name)
		case err != nil:
			return nil, fmt.Errorf("stream %s: %w", name, err)
		default:
			if problem := unsuited(s.CachedInfo().Config); problem != "" {
				return nil, fmt.Errorf("stream %s %s: run `errand provision`", name, problem)
			}
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("NATS has no %s: run `errand provision` against it first", strings.Join(missing, ", no "))
	}
	return found, nil
}
