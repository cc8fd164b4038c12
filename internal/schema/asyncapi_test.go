package schema

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"errand/internal/bus"
	"errand/internal/wire"
	"errand/pkg/messages"
)

// anAPI is the document, as far as these tests look at it.
type anAPI struct {
	Channels map[string]struct {
		Address    string
		Messages   map[string]aRef
		Parameters map[string]aRef
	}
	Operations map[string]struct {
		Action  string
		Channel aRef
	}
	Components struct {
		Messages map[string]struct {
			Payload  struct{ Schema aRef }
			Headers  json.RawMessage
			Examples []struct {
				Headers map[string]string
				Payload json.RawMessage
			}
		}
	}
}

type aRef struct {
	Ref string `json:"$ref"`
}

// document is docs/asyncapi.yaml as JSON.
func document(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "asyncapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func theAPI(t *testing.T) (api anAPI) {
	t.Helper()
	if err := json.Unmarshal(document(t), &api); err != nil {
		t.Fatal(err)
	}
	return api
}

func read(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestTheDocumentIsValidForAsyncAPI(t *testing.T) {
	file, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := jsonschema.UnmarshalJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("urn:asyncapi", meta); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("urn:asyncapi")
	if err != nil {
		t.Fatal(err)
	}
	value := read(t, document(t))
	if err := schema.Validate(value); err != nil {
		t.Error(err)
	}
	value.(map[string]any)["chanels"] = true
	if schema.Validate(value) == nil {
		t.Error("a document with an unknown member is valid")
	}
}

// Every reference within the document, and to a schema, leads somewhere.
func TestEveryReferenceOfTheDocumentLeadsSomewhere(t *testing.T) {
	text := document(t)
	for _, found := range regexp.MustCompile(`"\$ref":"([^"]+)"`).FindAllSubmatch(text, -1) {
		to := string(found[1])
		if path, inside := strings.CutPrefix(to, "#/"); inside {
			value := read(t, text)
			for name := range strings.SplitSeq(path, "/") {
				members, _ := value.(map[string]any)
				value = members[name]
			}
			if value == nil {
				t.Errorf("%s leads nowhere", to)
			}
		} else if _, err := os.Stat(filepath.Join(docs, to)); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestEveryChannelHasOneMessageOneOperationAndItsParameters(t *testing.T) {
	api := theAPI(t)
	operations := map[string]string{}
	for _, o := range api.Operations {
		operations[o.Channel.Ref] += o.Action
	}
	for name, c := range api.Channels {
		want := "send"
		if strings.HasSuffix(name, ".requested") && !strings.HasPrefix(name, "dead.") {
			want = "receive"
		}
		if got := operations["#/channels/"+name]; got != want {
			t.Errorf("%s has the operations %q, want %q", name, got, want)
		}
		if got := c.Messages[name].Ref; len(c.Messages) != 1 || got != "#/components/messages/"+name {
			t.Errorf("%s has the messages %v", name, c.Messages)
		}
		for parameter := range c.Parameters {
			if !strings.Contains(c.Address, ".{"+parameter+"}") {
				t.Errorf("%s has the parameter %s, and not the address %s", name, parameter, c.Address)
			}
		}
		if strings.Count(c.Address, "{") != len(c.Parameters) || !strings.HasPrefix(c.Address, name) {
			t.Errorf("%s has the address %s and %d parameters", name, c.Address, len(c.Parameters))
		}
	}
}

// A channel is a subject of one stream, and each subject of a stream has channels. The leases of calls, requests that are
// scheduled, and by what a poller becomes the active one, are the programs' own: they are not events, and have no channel.
func TestTheChannelsAreTheSubjectsOfTheStreams(t *testing.T) {
	var want, got []string
	matched := map[string]bool{}
	for _, c := range theAPI(t).Channels {
		subject := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(c.Address, "x")
		var in []string
		for _, s := range bus.Streams(bus.Limits{MaxPayload: 1 << 20}) {
			for _, filter := range s.Subjects {
				if wire.MatchSubject(filter, subject) {
					in = append(in, s.Name)
					matched[filter] = true
				}
			}
		}
		if len(in) != 1 {
			t.Errorf("%s is in the streams %q, want one", subject, in)
		}
	}
	for _, s := range bus.Streams(bus.Limits{MaxPayload: 1 << 20}) {
		for _, filter := range s.Subjects {
			own := slices.Contains([]string{bus.RateLeases, bus.Audit, bus.Keys, bus.Suppressions}, s.Name) || s.AllowMsgSchedules
			if !matched[filter] && !own && !strings.HasSuffix(filter, ".turn") {
				t.Errorf("%s of %s has no channel", filter, s.Name)
			}
		}
	}
	for name := range theAPI(t).Channels {
		if !strings.HasPrefix(name, "dead.") {
			got = append(got, name)
		}
	}
	want = slices.Sorted(slices.Values(Subjects()))
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
}

func TestWhateverAUserMayPublishHasAChannel(t *testing.T) {
	config, err := os.ReadFile("../../deploy/nats/errand.conf")
	if err != nil {
		t.Fatal(err)
	}
	subjects := regexp.MustCompile(`"((?:mandate|mail)\.\w+\.\w+)[.*]*"`).FindAllSubmatch(config, -1)
	for _, s := range subjects {
		if subject := string(s[1]); !slices.Contains(Subjects(), subject) && !strings.HasSuffix(subject, ".turn") {
			t.Errorf("%s has no channel", subject)
		}
	}
	if len(subjects) < 50 {
		t.Errorf("%d subjects, want more", len(subjects))
	}
}

func TestTheExamplesOfTheDocumentAreValid(t *testing.T) {
	api, all := theAPI(t), compiled(t)
	whole := jsonschema.NewCompiler()
	whole.AssertFormat()
	whole.DefaultDraft(jsonschema.Draft7)
	if err := whole.AddResource("urn:errand", read(t, document(t))); err != nil {
		t.Fatal(err)
	}
	for name, m := range api.Components.Messages {
		headers, err := whole.Compile("urn:errand#/components/messages/" + name + "/headers")
		if err != nil {
			t.Fatal(err)
		}
		if dead := strings.HasPrefix(name, "dead."); dead != (len(m.Examples) == 0) || dead != (m.Payload.Schema.Ref == "") {
			t.Errorf("%s has %d examples and the payload %q", name, len(m.Examples), m.Payload.Schema.Ref)
		}
		for _, example := range m.Examples {
			validates(t, all[name], name, example.Payload)
			text, err := json.Marshal(example.Headers)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(name, ".requested") {
				validates(t, headers, name+": headers", text)
				if got := example.Headers["ce-type"]; got != name && !(open[messages.Operation(name)] && strings.HasPrefix(got, name+".")) {
					t.Errorf("%s: ce-type is %q", name, example.Headers["ce-type"])
				}
			}
		}
	}
}

// The headers that publishers and subscribers see are listed in docs/use/reference.md.
func TestTheHeadersOfTheDocumentAreThoseOfMessages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "use", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Headers\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var want, got []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if strings.HasPrefix(line, "| `") && !strings.Contains(line, "for the programs alone") {
			want = append(want, codes(cells[1])...)
		}
	}
	for _, headers := range []object{requestHeaders, eventHeaders, deadLetterHeaders} {
		for _, m := range headers {
			if m.name == "properties" {
				for _, header := range m.value.(object) {
					got = append(got, header.name)
				}
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-reference.md +asyncapi.yaml):\n%s", diff)
	}
}
