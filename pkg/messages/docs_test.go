package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"errand/internal/wire"
)

// These tests and docs_requests_test.go hold docs/use to the code: what the one has, the other has.

// section is what stands below a heading, up to the next one.
type section struct {
	title string
	text  string
}

// sections are the sections of a page of docs/use.
func sections(t *testing.T, page string) (all []section) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "use", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range regexp.MustCompile(`(?m)^##+ `).Split(string(text), -1)[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		all = append(all, section{title, rest})
	}
	return all
}

const reference = "reference.md"

func sectionOf(t *testing.T, page, title string) section {
	t.Helper()
	for _, s := range sections(t, page) {
		if s.title == title {
			return s
		}
	}
	t.Fatalf("docs/use/%s has no section %q", page, title)
	return section{}
}

// code is what stands between backticks.
var code = regexp.MustCompile("`([^`]+)`")

func codesIn(text string) (all []string) {
	for _, found := range code.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// rows are the cells of the rows of all tables that begin with code, and that code.
func (s section) rows() (all [][]string) {
	for line := range strings.Lines(s.text) {
		if strings.HasPrefix(line, "| `") {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			cells[0] = strings.Trim(cells[0], "`")
			all = append(all, cells)
		}
	}
	return all
}

// examples are the JSON texts of a section.
func (s section) examples() (all []string) {
	for _, block := range strings.Split(s.text, "```json\n")[1:] {
		text, _, _ := strings.Cut(block, "```")
		all = append(all, text)
	}
	return all
}

// documentedEvents are the subjects without an id, and what is published there.
var documentedEvents = map[string]Body{
	"mandate.enroll.started": &EnrollStarted{}, "mandate.enroll.deferred": &DeferredBody{}, "mandate.enroll.succeeded": &EnrollSucceeded{},
	"mandate.enroll.failed": &FailedBody{}, "mandate.enroll.uncertain": &EnrollUncertain{}, "mandate.enroll.resolved": &EnrollResolved{},
	"mandate.enroll.erased": &ErasedBody{}, "mandate.transactions.erased": &ErasedBody{}, "mail.send.erased": &ErasedBody{},
	"mail.batch.erased": &ErasedBody{}, "mail.account.erased": &ErasedBody{}, "mail.delivery.erased": &ErasedBody{},
	"mandate.application.erased": &ErasedBody{}, "mandate.deduction.erased": &ErasedBody{}, "mandate.enroll.reopened": &ReopenedBody{},
	"mandate.transactions.reopened": &ReopenedBody{}, "mail.account.reopened": &ReopenedBody{},
	"mandate.transactions.page": &TransactionsPage{}, "mandate.transactions.listed": &TransactionsListed{},
	"mandate.transactions.failed": &FailedBody{},
	"mail.send.started":           &SendStarted{}, "mail.send.deferred": &DeferredBody{}, "mail.send.accepted": &SendOutcome{},
	"mail.send.partial": &SendOutcome{}, "mail.send.failed": &SendOutcome{}, "mail.send.uncertain": &SendOutcome{},
	"mail.send.resolved": &SendResolved{}, "mail.send.reopened": &ReopenedBody{}, "mail.batch.started": &BatchBody{},
	"mail.batch.accepted": &BatchBody{}, "mail.batch.refused": &BatchBody{}, "mail.batch.deferred": &BatchBody{},
	"mail.batch.uncertain": &BatchBody{}, "mail.account.reported": &AccountReported{}, "mail.account.failed": &FailedBody{},
	"mail.delivery.delivered": &DeliveryBody{}, "mail.delivery.deferred": &DeliveryBody{}, "mail.delivery.bounced": &DeliveryBody{},
	"mail.delivery.unknown": &DeliveryBody{}, "mail.delivery.summary": &SummaryBody{}, "mandate.application": &TransactionBody{},
	"mandate.deduction": &TransactionBody{}, "mandate.transactions.watermark": &Watermark{}, "mandate.callback.received": &CallbackBody{},
	"mail.log.watermark": &Watermark{},
}

func TestEveryFieldOfAnEventIsDocumented(t *testing.T) {
	if diff := cmp.Diff(fieldRows(reflect.TypeFor[Common](), ""), documentedFields(sectionOf(t, reference, "Every event"))); diff != "" {
		t.Errorf("every event (-code +document):\n%s", diff)
	}
	var seen []string
	for _, s := range sections(t, reference) {
		for _, subject := range codesIn(s.title) {
			if strings.HasSuffix(subject, ".requested") {
				continue
			}
			seen = append(seen, subject)
			body := documentedEvents[subject]
			if body == nil {
				t.Errorf("%s is documented and does not exist", subject)
				continue
			}
			if diff := cmp.Diff(fieldRows(reflect.TypeOf(body).Elem(), ""), documentedFields(s)); diff != "" {
				t.Errorf("%s (-code +document):\n%s", subject, diff)
			}
			for _, example := range s.examples() {
				in := json.NewDecoder(strings.NewReader(example))
				in.DisallowUnknownFields()
				if err := in.Decode(reflect.New(reflect.TypeOf(body).Elem()).Interface()); err != nil {
					t.Errorf("the example of %s: %v", subject, err)
				}
			}
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(documentedEvents)), sorted(seen)); diff != "" {
		t.Errorf("subjects (-code +document):\n%s", diff)
	}
}

// documentedFields are the fields of a section as "name type there". A row may have several names.
func documentedFields(s section) (all []string) {
	for _, row := range s.rows() {
		for _, name := range codesIn("`" + row[0] + "`") {
			kind, there := row[1], "always"
			if sometimes, optional := strings.CutSuffix(kind, "?"); optional {
				kind, there = sometimes, "if"
			}
			all = append(all, strings.Join([]string{name, kind, there}, " "))
		}
	}
	return sorted(all)
}

// fieldRows are the members of a struct as JSON has them, with the members of its parts.
func fieldRows(of reflect.Type, prefix string) (all []string) {
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		switch {
		case field.Anonymous && inner != reflect.TypeFor[Common]():
			all = append(all, fieldRows(inner, prefix)...)
			continue
		case field.Anonymous, name == "-":
			continue
		}
		there := "always"
		if options == "omitempty" {
			there = "if"
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		all = append(all, strings.Join([]string{prefix + name, jsonType(inner), there}, " "))
		switch {
		case jsonType(inner) == "array" && inner.Elem().Kind() == reflect.Struct:
			all = append(all, fieldRows(inner.Elem(), prefix+name+"[].")...)
		case jsonType(inner) == "object" && inner.Kind() == reflect.Struct:
			all = append(all, fieldRows(inner, prefix+name+".")...)
		}
	}
	return sorted(all)
}

func jsonType(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[Time]():
		return "time"
	case reflect.TypeFor[json.RawMessage]():
		return "object"
	case reflect.TypeFor[json.Number]():
		return "number"
	case reflect.TypeFor[[]byte]():
		return "base64"
	}
	switch of.Kind() {
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Int:
		return "integer"
	case reflect.Bool:
		return "boolean"
	}
	return of.Kind().String()
}

func TestEveryReasonIsDocumented(t *testing.T) {
	var got []string
	for _, row := range sectionOf(t, reference, "Reasons").rows() {
		got = append(got, row[0])
	}
	if diff := cmp.Diff(sorted(constants(t, "Reason", "Reason")), sorted(got)); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}

func TestEveryStateIsDocumentedAndRequestsAndFinalEventsHaveExamples(t *testing.T) {
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"EnrollRequest", "TransactionsRequest", "SendRequest", "AccountRequest"} {
		if !bytes.Contains(examples, []byte("func Example"+name+"()")) {
			t.Errorf("there is no Example%s", name)
		}
	}
	reached := map[string]bool{string(Requested): true} // of requests, which are documented apart
	for subject, body := range documentedEvents {
		state := StateOf(subject)
		reached[string(state)] = true
		operation := Operation(strings.TrimSuffix(subject, "."+string(state)))
		name := reflect.TypeOf(body).Elem().Name()
		if state.Final(operation) && !bytes.Contains(examples, []byte("func Example"+name+"()")) {
			t.Errorf("%s: there is no Example%s", subject, name)
		}
	}
	for _, state := range constants(t, "", "State") {
		if !reached[state] {
			t.Errorf("no documented event has the state %s", state)
		}
	}
	for _, o := range constants(t, "", "Operation") {
		for _, state := range constants(t, "", "State") {
			if subject := Operation(o).Subject(State(state), ""); State(state).Final(Operation(o)) && documentedEvents[subject] == nil {
				t.Errorf("%s is final and not documented", subject)
			}
		}
	}
}

// constants are the values of this package's string constants of a name that begins so and of
// a type, "" for any.
func constants(t *testing.T, prefix, of string) (values []string) {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for node := range ast.Preorder(file) {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
				continue
			}
			literal, isLiteral := spec.Values[0].(*ast.BasicLit)
			kind, _ := spec.Type.(*ast.Ident)
			if isLiteral && literal.Kind == token.STRING && (of == "" || kind != nil && kind.Name == of) {
				value, _ := strconv.Unquote(literal.Value)
				values = append(values, value)
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("no constants %s %s", prefix, of)
	}
	return values
}

func TestEveryHeaderIsDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, row := range sectionOf(t, reference, "Headers").rows() {
		for _, name := range codesIn("`" + row[0] + "`") {
			documented[name] = true
		}
	}
	want := map[string]bool{"Nats-Msg-Id": true, "traceparent": true, "tracestate": true}
	headers := map[string][]string{}
	started := EnrollStarted{Common: Common{At: Time{time.Unix(0, 0)}}}
	Event{Operation: Enroll, State: Started, ID: "a", Body: &started}.Headers(headers, "s", "i")
	for name := range headers {
		want[name] = true
	}
	// Those of dead letters and deliveries are where they are written.
	literal := regexp.MustCompile(`"(Errand-[A-Za-z-]+)"`)
	err := filepath.WalkDir(filepath.Join("..", "..", "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range literal.FindAllSubmatch(text, -1) {
			want[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("(-code +document):\n%s", diff)
	}
}

func TestIDsAndTheVersionAreDocumented(t *testing.T) {
	ids := sectionOf(t, "ids-and-corrections.md", "The request id").text
	for _, part := range append([]string{"[A-Za-z0-9_-]{1,64}", Unmatched}, wire.Streams...) {
		if !strings.Contains(ids, "`"+part+"`") {
			t.Errorf("the section of the request id does not say %s", part)
		}
	}
	if !strings.Contains(sectionOf(t, reference, "Versions").text, fmt.Sprintf("`messages.Version`, now %d.", Version)) {
		t.Errorf("the document does not say that the version is %d", Version)
	}
}

// The examples of docs/use/deliveries.md are bodies as they are published: with each of their fields, and with no other.
func TestTheExamplesOfDeliveriesAreBodies(t *testing.T) {
	text, err := os.ReadFile("../../docs/use/deliveries.md")
	if err != nil {
		t.Fatal(err)
	}
	bodies := []any{&DeliveryBody{}, &SummaryBody{}, &SendResolved{}, &Watermark{}}
	examples := strings.Split(string(text), "```json\n")[1:]
	if len(examples) != len(bodies) {
		t.Fatalf("%d examples, want %d", len(examples), len(bodies))
	}
	for i, body := range bodies {
		example, _, _ := strings.Cut(examples[i], "```")
		if err := DecodeEvent([]byte(example), body); err != nil {
			t.Errorf("%T: %v", body, err)
			continue
		}
		written, err := json.Marshal(body)
		var want, got any
		if err = errors.Join(err, json.Unmarshal([]byte(example), &want), json.Unmarshal(written, &got)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T, of the example (-) and as it is written (+):\n%s", body, diff)
		}
	}
}
