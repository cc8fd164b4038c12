package programs

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"errand/internal/typo"
)

// misspelling is a variable that no setting reads, and the settings that may have been meant.
type misspelling struct{ variable, meant string }

func (m misspelling) String() string {
	return m.variable + ": no setting has this name; was " + m.meant + " meant?"
}

// injected are the variables that Kubernetes sets for each service of a namespace: one named nats sets NATS_PORT.
var injected = regexp.MustCompile(`(_SERVICE_(HOST|PORT(_.*)?)|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// misspelt returns the variables whose names are close to a setting's but not equal. Short names are close to anything.
func misspelt(parser *kong.Kong, environment []string) (all []misspelling) {
	settings := map[string]bool{}
	var visit func(*kong.Node)
	visit = func(n *kong.Node) {
		for _, flag := range n.Flags {
			for _, variable := range flag.Envs {
				settings[variable] = true
			}
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(parser.Model.Node)
	names := slices.Sorted(maps.Keys(settings))
	for _, entry := range environment {
		variable, _, _ := strings.Cut(entry, "=")
		if settings[variable] || injected.MatchString(variable) {
			continue
		}
		likely := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			wrong := 2
			if len(name) < 9 {
				wrong = 1
			}
			return len(name) < 6 || typo.Distance(variable, name) > wrong
		})
		if len(likely) > 0 {
			all = append(all, misspelling{variable, strings.Join(likely, " or ")})
		}
	}
	return all
}
