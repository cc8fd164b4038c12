package main

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"errand/internal/programs"
)

// all are the programs in docs/use/reference.md. The console is left out: it links SQLite, which takes long to build.
var all = []struct {
	name   string
	config func() any
}{
	{"mandate-consumer", func() any { return new(programs.MandateConsumer) }},
	{"mail-consumer", func() any { return new(programs.MailConsumer) }},
	{"log-poller", func() any { return new(programs.LogPoller) }},
	{"transaction-poller", func() any { return new(programs.TransactionPoller) }},
	{"callback-receiver", func() any { return new(programs.CallbackReceiver) }},
}

// setting is one flag with its variables.
type setting struct {
	flag, variables, meaning string
	file                     bool // FLAG-file reads it from a file
	of                       []string
}

// settings are the tables of all settings, one for each set of programs.
func settings() (string, error) {
	var found []*setting
	for _, program := range all {
		parser, err := kong.New(program.config())
		if err != nil {
			return "", err
		}
		for _, flags := range parser.Model.AllFlags(true) {
			for _, f := range flags {
				if f.Name != "help" && f.Group.Key != "traces" { // OpenTelemetry's own, see docs/run/observe.md
					found = add(found, program.name, f)
				}
			}
		}
	}
	var b strings.Builder
	var titles []string
	for _, s := range found {
		if title := strings.Join(s.of, ", "); !slices.Contains(titles, title) {
			titles = append(titles, title)
		}
	}
	slices.SortStableFunc(titles, func(a, b string) int { return strings.Count(b, ",") - strings.Count(a, ",") })
	for _, title := range titles {
		heading := title
		if strings.Count(title, ",") == len(all)-1 {
			heading = "every program"
		}
		fmt.Fprintf(&b, "\n### Settings of %s\n\n| variable | default | meaning |\n|---|---|---|\n", heading)
		for _, s := range found {
			if strings.Join(s.of, ", ") == title {
				b.WriteString(s.row())
			}
		}
	}
	return b.String(), nil
}

// explained is a default that a text has at its end.
var explained = regexp.MustCompile(`[.;] [Dd]efault: ([^.]+)$`)

// add adds a program's flag. A setting that two programs explain differently is two.
func add(found []*setting, program string, f *kong.Flag) []*setting {
	base, isFile := strings.CutSuffix(f.Name, "-file")
	s := &setting{flag: f.Name, variables: "`" + strings.Join(f.Envs, "`, `") + "`", of: []string{program}}
	help, initial := strings.TrimSuffix(strings.ReplaceAll(f.Help, "|", `\|`), "."), f.Default
	if said := explained.FindStringSubmatchIndex(help); initial == "" && said != nil {
		help, initial = help[:said[0]], help[said[2]:said[3]]
	}
	s.meaning = initial + " | " + help
	for _, other := range found {
		switch {
		case isFile && other.flag == base && slices.Contains(other.of, program):
			other.file = true
			return found
		case other.flag == s.flag && other.variables == s.variables && other.meaning == s.meaning:
			other.of = append(other.of, program)
			return found
		}
	}
	return append(found, s)
}

// row is a row of a table. The flag is there only where it is not the variable in lower case.
func (s *setting) row() string {
	name := s.variables
	if usual := strings.ReplaceAll(strings.ToLower(strings.Trim(s.variables, "`")), "_", "-"); usual != s.flag {
		name += " `--" + s.flag + "`"
	}
	if s.file {
		name += " (file)"
	}
	return fmt.Sprintf("| %s | %s |\n", name, s.meaning)
}

const begin, end = "<!-- settings: go generate ./docs/schemas -->\n", "<!-- end of settings -->\n"

// withSettings is the reference with its tables of settings made again.
func withSettings(reference []byte) ([]byte, error) {
	before, rest, begins := bytes.Cut(reference, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !begins || !ends {
		return nil, errors.New("docs/use/reference.md has no place for settings")
	}
	tables, err := settings()
	return slices.Concat(before, []byte(begin+tables+"\n"+end), after), err
}
