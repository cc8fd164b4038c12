package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"errand/internal/bus"
)

// The fields of NACK's resources, by the fields that errand's topology has. A field that is not
// here is one that the component does not say yet.
var (
	streamFields = map[string]string{
		"Name": "name", "Subjects": "subjects", "Retention": "retention", "Storage": "storage", "Replicas": "replicas", "Discard": "discard",
		"MaxAge": "maxAge", "MaxBytes": "maxBytes", "MaxMsgSize": "maxMsgSize", "Duplicates": "duplicateWindow", "DenyDelete": "denyDelete", "DenyPurge": "denyPurge", "Description": "description", "AllowDirect": "allowDirect",
		"AllowAtomicPublish": "allowAtomicPublish", "MaxMsgsPerSubject": "maxMsgsPerSubject",
	}
	consumerFields = map[string]string{
		"Durable": "durableName", "Description": "description", "FilterSubject": "filterSubject", "AckPolicy": "ackPolicy", "AckWait": "ackWait",
		"MaxDeliver": "maxDeliver", "MaxAckPending": "maxAckPending", "Metadata": "metadata",
	}
	// implied is what the component says besides: NACK's own, and defaults of its that are not the server's.
	implied = map[string]any{"preventDelete": true, "deliverPolicy": "all"}
	// always are said even where they are the zero value, since NACK's default is another one.
	always = []string{"Retention", "Storage", "Discard", "AckPolicy"}
)

// TestNACKMakesTheTopology: the component's resources are what `errand provision` makes with its defaults.
func TestNACKMakesTheTopology(t *testing.T) {
	limits := bus.Limits{MaxPayload: 1 << 20}
	want := map[string]map[string]any{"ObjectStore lists": {
		"bucket": "lists", "description": "recipient lists", "storage": "file", "replicas": float64(1), "preventDelete": true}}
	for _, s := range bus.Streams(limits) {
		want["Stream "+s.Name] = resourceOf(t, s, streamFields)
	}
	for _, q := range bus.Queues() {
		spec := resourceOf(t, q.Config(limits), consumerFields)
		spec["streamName"], spec["deliverPolicy"] = q.Stream, implied["deliverPolicy"]
		want["Consumer "+q.Name] = spec
	}
	for _, overlay := range []string{"overlays/sandbox", "overlays/production"} {
		s, got := render(t, overlay, "components/nack"), map[string]map[string]any{}
		for _, o := range s.raw {
			if o["apiVersion"] != "jetstream.nats.io/v1beta2" {
				continue
			}
			spec := o["spec"].(map[string]any)
			for _, field := range []string{"maxAge", "duplicateWindow", "ackWait"} { // 24h and 24h0m0s are the same
				if text, ok := spec[field].(string); ok {
					d, err := time.ParseDuration(text)
					if err != nil {
						t.Errorf("%s: %s: %v", named(o), field, err)
					}
					spec[field] = d.String()
				}
			}
			name := spec["name"]
			switch o["kind"] {
			case "Consumer":
				name = spec["durableName"]
			case "ObjectStore":
				name = spec["bucket"]
			}
			got[fmt.Sprint(o["kind"], " ", name)] = spec
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: - is what errand provision makes, + what the component says:\n%s", overlay, diff)
		}
		if len(s.jobs) > 0 {
			t.Errorf("%s: the Job is still there beside the resources", overlay)
		}
	}
}

// resourceOf is a configuration in NACK's words.
func resourceOf[T any](t *testing.T, config T, fields map[string]string) map[string]any {
	t.Helper()
	spec, v := map[string]any{"preventDelete": implied["preventDelete"]}, reflect.ValueOf(config)
	for i := range v.NumField() {
		name, value := v.Type().Field(i).Name, v.Field(i)
		if value.IsZero() && !slices.Contains(always, name) {
			continue
		}
		as, ok := fields[name]
		if !ok {
			if !value.IsZero() {
				t.Errorf("%T has %s=%v: how does NACK say that? known are %v", config, name, value, slices.Sorted(maps.Keys(fields)))
			}
			continue
		}
		switch value := value.Interface().(type) {
		case []string:
			list := make([]any, len(value))
			for i := range value {
				list[i] = value[i]
			}
			spec[as] = list
		case map[string]string:
			texts := map[string]any{}
			for key, text := range value {
				texts[key] = text
			}
			spec[as] = texts
		case time.Duration:
			spec[as] = value.String()
		case jetstream.RetentionPolicy:
			spec[as] = map[jetstream.RetentionPolicy]string{jetstream.LimitsPolicy: "limits", jetstream.WorkQueuePolicy: "workqueue", jetstream.InterestPolicy: "interest"}[value]
		case jetstream.DiscardPolicy:
			spec[as] = map[jetstream.DiscardPolicy]string{jetstream.DiscardOld: "old", jetstream.DiscardNew: "new"}[value]
		case jetstream.StorageType:
			spec[as] = map[jetstream.StorageType]string{jetstream.FileStorage: "file", jetstream.MemoryStorage: "memory"}[value]
		case jetstream.AckPolicy:
			spec[as] = map[jetstream.AckPolicy]string{jetstream.AckExplicitPolicy: "explicit", jetstream.AckNonePolicy: "none", jetstream.AckAllPolicy: "all"}[value]
		case int:
			spec[as] = float64(value)
		case int32:
			spec[as] = float64(value)
		case int64:
			spec[as] = float64(value)
		default:
			spec[as] = value
		}
	}
	return spec
}
