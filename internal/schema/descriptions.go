package schema

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// descriptions are what docs/use/reference.md says.
type descriptions struct {
	about  map[string]string            // by subject: what it is
	fields map[string]map[string]string // by subject, "" for every event: what each field is
	sample map[string]string            // by subject: its first example
}

var (
	heading = regexp.MustCompile(`(?m)^##+ `)
	code    = regexp.MustCompile("`([^`]+)`")
	link    = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
)

func codes(text string) (all []string) {
	for _, found := range code.FindAllStringSubmatch(text, -1) {
		all = append(all, found[1])
	}
	return all
}

// readDescriptions reads the document: what is below a heading is about the subjects in it.
func readDescriptions(document string) (descriptions, error) {
	w := descriptions{about: map[string]string{}, fields: map[string]map[string]string{"": {}}, sample: map[string]string{}}
	for _, part := range heading.Split(document, -1)[1:] {
		title, text, _ := strings.Cut(part, "\n")
		fields, about := tableOf(text)
		if title == "Every event" || title == "Fields of many events" {
			maps.Copy(w.fields[""], fields)
		}
		for _, subject := range codes(title) {
			if about == "" {
				return w, fmt.Errorf("docs/use/reference.md does not say what %s is", subject)
			}
			w.fields[subject], w.about[subject] = fields, about
			if _, rest, found := strings.Cut(text, "```json\n"); found {
				w.sample[subject], _, _ = strings.Cut(rest, "```")
			}
		}
	}
	if len(w.fields[""]) == 0 {
		return w, fmt.Errorf("docs/use/reference.md has no table of every event")
	}
	return w, nil
}

// tableOf returns what the rows of a table say about each field, and the text above it.
func tableOf(text string) (fields map[string]string, about string) {
	fields = map[string]string{}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for _, name := range codes(cells[0]) {
			if len(cells) > 2 {
				fields[name] = plain(cells[2]) // of an event its meaning, of a request its rule
			}
		}
	}
	about, _, _ = strings.Cut(text, "\n|")
	return fields, plain(about)
}

// plain is Markdown without links and line breaks.
func plain(text string) string {
	return strings.Join(strings.Fields(link.ReplaceAllString(text, "$1")), " ")
}

// of is what the document says about a field of a subject.
func (w descriptions) of(subject, field string) (string, error) {
	for _, of := range []string{subject, ""} {
		if text, found := w.fields[of][field]; found {
			return text, nil
		}
	}
	return "", fmt.Errorf("docs/use/reference.md does not say what %s of %s is", field, subject)
}
