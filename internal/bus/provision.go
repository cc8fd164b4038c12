package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/retry"
	"errand/pkg/messages"
)

// Change is one difference between the topology and what the servers have.
type Change struct {
	Kind        string // "stream" or "consumer"
	Name        string
	Create      bool
	Fields      []Field // what differs, in the order of streamFields and consumerFields
	Destructive bool    // may drop messages or make programs fail
	Why         string  // what is lost, if that is not to be seen in the fields
	apply       func(context.Context) error
}

// Field is one setting that differs.
type Field struct{ Name, Have, Want string }

// Adds reports whether the change takes nothing away from what there is: something is new, or a stream takes more lanes.
func (c Change) Adds() bool {
	return c.Create || !c.Destructive && c.Kind == "stream" && len(c.Fields) == 1 && c.Fields[0].Name == "Subjects"
}

// String shows a change as a diff, a line a setting.
func (c Change) String() string {
	var b strings.Builder
	mark := "~"
	if c.Create {
		mark = "+"
	}
	fmt.Fprintf(&b, "%s %s %s", mark, c.Kind, c.Name)
	if c.Destructive {
		b.WriteString("  (destructive)")
	}
	if c.Why != "" {
		fmt.Fprintf(&b, "\n    %s", c.Why)
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

// Plan compares the servers with the topology. What errand does not decide, nor l choose, stays. A reader's account is an
// error.
func Plan(ctx context.Context, js jetstream.JetStream, l Limits) ([]Change, error) {
	var names []string
	for _, s := range Streams(Limits{}) {
		names = append(names, s.Name)
	}
	var have installed
	err := persist(ctx, js.Conn(), retry.Election, func(ctx context.Context) (err error) {
		have, err = inspect(ctx, js, func(have installed) []Queue { return Queues(have.lanes(slices.Clone(l.Lanes)...)...) }, names...)
		return err
	})
	if err != nil {
		return nil, err
	}
	for name, s := range have.streams {
		if s.Config.Mirror != nil {
			return nil, fmt.Errorf("stream %s is a reader's copy: errand's streams in this account would store requests that no program runs; "+
				"is NATS_USER errand's own provisioner?", name)
		}
	}
	made := l.or(have.limits()).or(Defaults)
	made.Lanes = have.lanes(slices.Clone(l.Lanes)...)
	var plan []Change
	var ages []time.Duration // of the streams with histories
	for _, want := range Streams(made) {
		if want.Name == DeadLetters { // they must not outlive their histories
			want.MaxAge = shortest(ages)
			want.Duplicates = window(retry.DeadLettersWindow, want.MaxAge)
		}
		current, there := have.streams[want.Name]
		if there {
			want = l.keep(current.Config, want)
		}
		if want.Name == MandateEvents || want.Name == MailEvents {
			ages = append(ages, want.MaxAge)
		}
		plan = append(plan, planStream(js, current, want, streamFields))
	}
	secret, err := planSecret(ctx, js, have)
	if err != nil {
		return nil, err
	}
	plan = append(plan, secret...)
	for _, q := range Queues(made.Lanes...) {
		want := q.Config(made)
		current, there := have.config(q)
		if there && l.AckWait == 0 {
			want.AckWait = current.AckWait
		}
		want.Description = cmp.Or(current.Description, want.Description)
		if there { // what the server and others note there stays, and so does the newer version of a rolling upgrade
			notes := maps.Clone(current.Metadata)
			if version(current) < messages.Version {
				maps.Copy(notes, want.Metadata)
			}
			want.Metadata = notes
		}
		// A pause stays as the server has it.
		change, _ := planned(js, Change{Kind: "consumer", Name: want.Durable, Create: !there}, current, want, consumerFields,
			on(q.Stream, js.CreateConsumer), on(q.Stream, js.UpdateConsumer))
		change.Destructive = there && (current.AckPolicy != want.AckPolicy || current.FilterSubject != want.FilterSubject)
		plan = append(plan, change)
	}
	return needed(plan), nil
}

// needed leaves out changes with nothing to do.
func needed(plan []Change) []Change {
	return slices.DeleteFunc(plan, func(c Change) bool { return c.apply == nil })
}

// WithoutHistory are the streams of events that a plan makes where the stream of their requests exists: its history is lost.
func WithoutHistory(plan []Change) (names []string) {
	made := func(name string) bool {
		return slices.ContainsFunc(plan, func(c Change) bool { return c.Kind == "stream" && c.Name == name && c.Create })
	}
	for _, s := range [][2]string{{MailRequests, MailEvents}, {MandateRequests, MandateEvents}} {
		if made(s[1]) && !made(s[0]) {
			names = append(names, s[1])
		}
	}
	return names
}

// small are the streams whose limits say nothing of others.
var small = []string{MandateCallbacks, RateLeases, Audit, Keys, MandateScheduled, MailScheduled, Suppressions}

// limits are what new streams get: as many replicas as any stream has, as many bytes as the largest, and the events' age.
func (i installed) limits() (l Limits) {
	unlimited := false
	for name, s := range i.streams {
		l.Replicas = max(l.Replicas, s.Config.Replicas)
		if !slices.Contains(small, name) {
			l.MaxBytes = max(l.MaxBytes, s.Config.MaxBytes)
			unlimited = unlimited || s.Config.MaxBytes <= 0
		}
	}
	if unlimited {
		l.MaxBytes = Unlimited
	}
	var ages []time.Duration
	for _, name := range []string{MandateEvents, MailEvents, MailDeliveries} {
		if s, ok := i.streams[name]; ok {
			ages = append(ages, s.Config.MaxAge)
		}
	}
	l.MaxAge = shortest(ages)
	for _, q := range Queues() {
		config, _ := i.config(q)
		l.AckWait = max(l.AckWait, config.AckWait)
	}
	return l
}

// shortest is the shortest of the times for which streams keep messages; 0 means for ever.
func shortest(ages []time.Duration) (least time.Duration) {
	for _, age := range ages {
		if age > 0 && (least == 0 || age < least) {
			least = age
		}
	}
	return least
}

// window is a duplicate window that is no longer than the messages are kept.
func window(longest, age time.Duration) time.Duration {
	if age > 0 {
		return min(longest, age)
	}
	return longest
}

// keep returns want with the limits of an existing stream where l chooses none, and with what a server cannot switch off.
func (l Limits) keep(have, want jetstream.StreamConfig) jetstream.StreamConfig {
	want.Description = cmp.Or(have.Description, want.Description)
	if l.Replicas == 0 {
		want.Replicas = have.Replicas
	}
	if l.maxBytes(want.Name) == 0 && !want.AllowMsgSchedules {
		want.MaxBytes = have.MaxBytes
	}
	if want.Name == Audit || want.Name == Suppressions { // no flag chooses its age
		want.MaxAge, want.Duplicates = have.MaxAge, window(retry.EventsWindow, have.MaxAge)
	} else if l.MaxAge == 0 && want.Retention == jetstream.LimitsPolicy && want.Name != DeadLetters {
		want.MaxAge = have.MaxAge
		want.Duplicates = window(retry.EventsWindow, want.MaxAge)
	}
	want.DenyPurge = want.DenyPurge || have.DenyPurge
	return want
}

// Apply makes the changes in order. Without force it refuses them all when one is destructive.
func Apply(ctx context.Context, plan []Change, force bool, done func(Change)) error {
	for _, c := range plan {
		if c.Destructive && !force {
			return fmt.Errorf("%s %s: the change may drop messages, stop programs or run requests again; nothing was changed: "+
				"use --force to make it", c.Kind, c.Name)
		}
	}
	for _, c := range plan {
		if err := c.apply(ctx); err != nil {
			return fmt.Errorf("%s %s: %w%s", c.Kind, c.Name, err, hint(err))
		}
		done(c)
	}
	return nil
}

// JetStream's codes for a stream without room.
const (
	errCodeNoPeers   = 10005
	errCodeNoStorage = 10047
)

func hint(err error) string {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && peerOffline(api) {
		return ": --replicas is more than the servers that are up"
	}
	if code := codeOf(err); code == errCodeNoStorage || code == errCodeNoPeers {
		return ": what --max-bytes gives the streams together must fit in the servers' max_file_store"
	}
	return ""
}

// planned is the change that makes fields of have what is wanted. It has no apply when there is nothing to do.
func planned[T, R any](js jetstream.JetStream, c Change, have, want T, fields []string,
	create, update func(context.Context, T) (R, error)) (
	Change, T,
) {
	c.Fields = diff(have, want, fields)
	merged, do := merge(have, want, fields), update
	if c.Create {
		merged, do = want, create
	} else if len(c.Fields) == 0 {
		return c, merged
	}
	c.apply = patient(js, func(ctx context.Context) error { _, err := do(ctx, merged); return err })
	return c, merged
}

// planStream compares fields of a stream; now is nil if there is none.
func planStream(js jetstream.JetStream, now *jetstream.StreamInfo, want jetstream.StreamConfig, fields []string) Change {
	var have jetstream.StreamConfig
	if now != nil {
		have = now.Config
	}
	change := Change{Kind: "stream", Name: want.Name, Create: now == nil}
	c, merged := planned(js, change, have, want, fields, createStream(js, fields), js.UpdateStream)
	if update := c.apply; update != nil && now != nil && merged.Replicas > have.Replicas {
		c.apply = func(ctx context.Context) error {
			err := update(ctx)
			if err == nil {
				copied(ctx, js, merged.Name, merged.Replicas)
			}
			return err
		}
	}
	full := now != nil && merged.MaxBytes > 0 && now.State.Bytes > uint64(merged.MaxBytes) // it would refuse or drop immediately
	c.Destructive = c.apply != nil && (full || now != nil && destructive(have, merged))
	return c
}

// copied waits until a stream and its consumers have all their copies, as long as an election may take: until then the loss of one
// server can be the loss of what they have. The server answers an update before it begins to copy.
func copied(ctx context.Context, js jetstream.JetStream, name string, replicas int) {
	for end := time.Now().Add(retry.Election); time.Now().Before(end); {
		s, err := js.Stream(ctx, name)
		if err == nil && haveCopies(ctx, s, replicas) || !retry.Pause(ctx, retry.Reconnect) {
			return
		}
	}
}

func haveCopies(ctx context.Context, s jetstream.Stream, replicas int) bool {
	now := s.CachedInfo()
	ready := CurrentReplicas(now.Cluster) >= replicas
	for _, q := range Queues(LanesOf(now.Config)...) {
		if ready && q.Stream == now.Config.Name {
			c, err := s.Consumer(ctx, q.Name)
			ready = errors.Is(err, jetstream.ErrConsumerNotFound) || err == nil && CurrentReplicas(c.CachedInfo().Cluster) >= replicas
		}
	}
	return ready
}

// createStream creates a stream; one that another person makes at the same time, and maybe has noted the secret in, is as good.
func createStream(js jetstream.JetStream, fields []string) func(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return func(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
		s, err := js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			if is, unread := js.Stream(ctx, want.Name); unread == nil && len(diff(is.CachedInfo().Config, want, fields)) == 0 {
				return is, nil
			}
		}
		return s, err
	}
}

// on is what makes or changes a consumer of one stream.
func on[R any](stream string, do func(context.Context, string, jetstream.ConsumerConfig) (R, error)) (
	of func(context.Context, jetstream.ConsumerConfig) (R, error),
) {
	return func(ctx context.Context, c jetstream.ConsumerConfig) (R, error) { return do(ctx, stream, c) }
}

// patient repeats what may be asked again while a cluster starts or elects a leader.
func patient(js jetstream.JetStream, ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error { return persist(ctx, js.Conn(), retry.Election, ask) }
}

// destructive reports whether an update can drop messages that are kept now, or is refused because it would have to.
func destructive(have, want jetstream.StreamConfig) bool {
	shorter := want.MaxAge != 0 && (have.MaxAge == 0 || want.MaxAge < have.MaxAge)
	fewer := want.Replicas < have.Replicas
	narrower := slices.ContainsFunc(have.Subjects, func(s string) bool { return !slices.Contains(want.Subjects, s) })
	return shorter || fewer || narrower || have.Retention != want.Retention || have.Storage != want.Storage
}

// The settings that errand decides; the operator decides all others.
var (
	streamFields = []string{"Subjects", "Retention", "Storage", "Replicas", "Discard", "MaxAge", "MaxBytes", "MaxMsgSize", "Duplicates",
		"DenyDelete", "DenyPurge", "AllowDirect", "AllowAtomicPublish", "AllowRollup", "AllowMsgSchedules", "Description"}
	consumerFields = []string{"FilterSubject", "AckPolicy", "AckWait", "MaxDeliver", "BackOff", "MaxAckPending", "Metadata", "Description"}
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
