package schema

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const docs = "../../docs"

// compiled are the schemas by subject, as they are committed.
func compiled(t testing.TB) map[string]*jsonschema.Schema {
	t.Helper()
	all, err := compileAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var compileAll = sync.OnceValues(func() (map[string]*jsonschema.Schema, error) {
	all := map[string]*jsonschema.Schema{}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	for _, subject := range Subjects() {
		text, err := os.ReadFile(filepath.Join(docs, "schemas", subject+".json"))
		if err != nil {
			return nil, err
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = compiler.AddResource("urn:errand:"+subject, value)
		}
		if err == nil {
			all[subject], err = compiler.Compile("urn:errand:" + subject)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
})

func TestWhatIsCommittedIsWhatIsGenerated(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(docs, "use", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := Files(document)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(docs, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what is generated (%v): run go generate ./docs/schemas", name, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(docs, "schemas", "*.json"))
	if err != nil || len(there) != len(files)-1 {
		t.Errorf("docs/schemas has %d schemas, %d are generated: %v", len(there), len(files)-1, err)
	}
}

// validates fails the test unless the text is valid.
func validates(t *testing.T, schema *jsonschema.Schema, what string, text []byte) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil && schema == nil {
		t.Errorf("%s has no schema", what)
		return
	}
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", what, text, err)
	}
}

// examplesOf are the examples within a schema.
func examplesOf(t *testing.T, subject string) []json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "schemas", subject+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct{ Examples []json.RawMessage }
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Examples
}

func TestEverySchemaHasAnExampleThatIsValid(t *testing.T) {
	for subject, schema := range compiled(t) {
		examples := examplesOf(t, subject)
		if len(examples) == 0 {
			t.Errorf("%s has no example", subject)
		}
		for _, example := range examples {
			validates(t, schema, subject, example)
		}
	}
}

// The examples of docs/use/reference.md are valid by its schemas.
func TestTheExamplesOfMessagesAreValid(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(docs, "use", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := readDescriptions(string(text))
	if err != nil || len(w.sample) < 7 {
		t.Fatalf("%d examples, %v", len(w.sample), err)
	}
	for subject, example := range w.sample {
		validates(t, compiled(t)[subject], subject, []byte(example))
	}
}

// Subjects are the subjects with a schema, without an id or an open state: requests first, then events, each in
// the order in which a request meets them.
func Subjects() (all []string) {
	for _, r := range requests {
		all = append(all, r.operation.Requested())
	}
	for _, e := range events {
		all = append(all, name(e))
	}
	return all
}
