package schema

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// These tests hold the schemas to the last release: what was published once is relied upon.

var update = flag.Bool("update", false, "write testdata/released.txt: the fields there are now are released")

const released = "testdata/released.txt"

// node is a part of a schema, as far as these tests look at it.
type node struct {
	Type       string
	Enum       []any
	Const      any
	Ref        string `json:"$ref"`
	AnyOf      []node
	Properties map[string]node
	Required   []string
	Items      *node
	Defs       map[string]node `json:"$defs"`
}

// aField is a member of a body, at any depth.
type aField struct {
	Types    []string
	Enum     []string
	Required bool
}

func schemaOf(t *testing.T, subject string) node {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "schemas", subject+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// fieldsIn adds the members of an object by their path.
func (n node) fieldsIn(root node, prefix string, all map[string]aField) {
	for name, property := range n.Properties {
		f := aField{Required: slices.Contains(n.Required, name)}
		for _, form := range property.forms(root) {
			f.Types = append(f.Types, form.Type)
			for _, value := range form.Enum {
				f.Enum = append(f.Enum, fmt.Sprint(value))
			}
			form.fieldsIn(root, prefix+name+".", all)
			if form.Items != nil {
				form.Items.fieldsIn(root, prefix+name+"[].", all)
			}
		}
		slices.Sort(f.Types)
		f.Types = slices.Compact(f.Types)
		all[prefix+name] = f
	}
}

// forms are the alternatives of a value, but for what counts as left out.
func (n node) forms(root node) (all []node) {
	if name, found := strings.CutPrefix(n.Ref, "#/$defs/"); found {
		if name == "leftOut" {
			return nil
		}
		return root.Defs[name].forms(root)
	}
	for _, form := range n.AnyOf {
		all = append(all, form.forms(root)...)
	}
	if n.AnyOf == nil {
		if n.Type == "" {
			n.Type = "any"
		}
		all = append(all, n)
	}
	return all
}

func memberOf(t *testing.T, subject, path string) aField {
	t.Helper()
	all, root := map[string]aField{}, schemaOf(t, subject)
	root.fieldsIn(root, "", all)
	f, found := all[path]
	if !found {
		t.Fatalf("%s has no %s", subject, path)
	}
	return f
}

// line is a field as testdata/released.txt has it: subject, path, types, whether it is there always, values.
func (f aField) line(subject, path string) string {
	there := "if"
	if f.Required {
		there = "always"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", subject, path, strings.Join(f.Types, "|"), there, strings.Join(f.Enum, "|")))
}

func TestReleasedFieldsStayWhatTheyAre(t *testing.T) {
	now := map[string]aField{}
	var lines []string
	for _, subject := range Subjects() {
		all, root := map[string]aField{}, schemaOf(t, subject)
		root.fieldsIn(root, "", all)
		for _, path := range slices.Sorted(maps.Keys(all)) {
			now[subject+" "+path] = all[path]
			lines = append(lines, all[path].line(subject, path))
		}
	}
	if *update {
		if err := os.WriteFile(released, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(released)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]aField{}
	for line := range strings.Lines(string(text)) {
		words := append(strings.Fields(line), "")
		f := aField{Types: strings.Split(words[2], "|"), Required: words[3] == "always"}
		if words[4] != "" {
			f.Enum = strings.Split(words[4], "|")
		}
		before[words[0]+" "+words[1]] = f
	}
	if broken := breaks(before, now); len(broken) > 0 {
		t.Errorf("these break those who publish and subscribe, and need a new major version:\n%s", strings.Join(broken, "\n"))
	}
}

// breaks are the changes that those who rely on the fields notice.
func breaks(before, now map[string]aField) (all []string) {
	for name, was := range before {
		is, found := now[name]
		request := strings.Contains(name, ".requested ")
		lost := func(of, in []string) bool {
			return slices.ContainsFunc(of, func(s string) bool { return !slices.Contains(in, s) })
		}
		switch {
		case !found:
			all = append(all, name+" is gone")
		case request && (lost(was.Types, is.Types) || lost(was.Enum, is.Enum) || was.Enum == nil && is.Enum != nil):
			all = append(all, name+" takes less")
		case request && is.Required && !was.Required:
			all = append(all, name+" is required now")
		case !request && (lost(is.Types, was.Types) || was.Enum != nil && (is.Enum == nil || lost(is.Enum, was.Enum))):
			all = append(all, name+" may be something else")
		case !request && was.Required && !is.Required:
			all = append(all, name+" may be missing now")
		}
	}
	for name, is := range now {
		if _, found := before[name]; !found && is.Required && strings.Contains(name, ".requested ") &&
			!strings.Contains(name[strings.Index(name, " "):], ".") {
			all = append(all, name+" is new and required")
		}
	}
	slices.Sort(all)
	return all
}

func TestChangesThatBreakAreFound(t *testing.T) {
	base := func() map[string]aField {
		return map[string]aField{
			"a.b.requested x": {Types: []string{"integer", "string"}, Enum: []string{"p", "q"}},
			"a.b.done y":      {Types: []string{"string"}, Enum: []string{"p", "q"}, Required: true},
		}
	}
	for name, change := range map[string]func(map[string]aField){
		"a.b.requested x is gone": func(m map[string]aField) { delete(m, "a.b.requested x") },
		"a.b.requested x takes less": func(m map[string]aField) {
			m["a.b.requested x"] = aField{Types: []string{"string"}, Enum: []string{"p", "q"}}
		},
		"a.b.requested x is required now": func(m map[string]aField) { f := m["a.b.requested x"]; f.Required = true; m["a.b.requested x"] = f },
		"a.b.requested z is new and required": func(m map[string]aField) {
			m["a.b.requested z"] = aField{Types: []string{"string"},
				Required: true}
		},
		"a.b.done y is gone": func(m map[string]aField) { delete(m, "a.b.done y") },
		"a.b.done y may be something else": func(m map[string]aField) {
			m["a.b.done y"] = aField{Types: []string{"string"}, Enum: []string{"p", "r"}, Required: true}
		},
		"a.b.done y may be missing now": func(m map[string]aField) { m["a.b.done y"] = aField{Types: []string{"string"}, Enum: []string{"p"}} },
		"": func(m map[string]aField) {
			m["a.b.done z"] = aField{}
			m["a.b.requested z"] = aField{Types: []string{"string"}}
		},
	} {
		now := base()
		change(now)
		if got := strings.Join(breaks(base(), now), ", "); got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}
