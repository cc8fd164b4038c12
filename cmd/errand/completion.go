package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"errand/internal/bus/natscontext"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/pkg/messages"
)

// completion has a shell complete the command line of errand. The script asks the program
// itself for what may come next, so it is always that of the program.
type completion struct {
	Shell string   `arg:"" enum:"bash,zsh,fish,words" help:"bash, zsh or fish: its script. words: what the script asks for."`
	Words []string `arg:"" optional:"" passthrough:"" help:"The words of a command line so far, the last one unfinished."`
}

// Help is shown by --help in addition to the flags.
func (*completion) Help() string {
	return `Prints a script for the shell's start-up file.

Examples:

    source <(errand completion bash)                                          # in ~/.bashrc
    source <(errand completion zsh)                                           # in ~/.zshrc, after compinit
    errand completion fish > ~/.config/fish/completions/errand.fish`
}

// Run prints it.
func (k *completion) Run(ctx context.Context) error { return k.run(ctx, standard()) }

func (k *completion) run(_ context.Context, c console) error {
	if k.Shell != "words" {
		_, err := io.WriteString(c.out, scripts[k.Shell])
		return err
	}
	parser, err := kong.New(new(cli), kong.Name("errand"))
	if err != nil {
		return err
	}
	words := k.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, candidate := range candidates(parser.Model.Node, words) {
		fmt.Fprintln(c.out, candidate)
	}
	return nil
}

// scripts are those of the shells. A candidate's help follows its name after a tab.
var scripts = map[string]string{
	"bash": `_errand() {
  local IFS=$'\n' cur=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=($(compgen -W "$(errand completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)" -- "$cur"))
}
complete -o default -F _errand errand
`,
	"zsh": `#compdef errand
_errand() {
  local -a found
  found=(${(f)"$(errand completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("${(@)found//:/\\:}")
  found=("${(@)found/$'\t'/:}")
  _describe errand found
}
compdef _errand errand
`,
	"fish": `complete -c errand -f -a '(errand completion words -- (commandline -opc)[2..-1] (commandline -ct))'
`,
}

// candidates are what the last of some words may become, each with its help.
func candidates(node *kong.Node, words []string) (list []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	positional := 0
	var open *kong.Flag // waits for its value
	for _, word := range words[:len(words)-1] {
		switch {
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			if f := flagOf(node, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				open = f
			}
		default:
			if child := childOf(node, word); child != nil {
				node = child
			} else {
				positional++
			}
		}
	}
	switch last := words[len(words)-1]; {
	case open != nil:
		return valuesOf(open.Value)
	case strings.HasPrefix(last, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				list = append(list, "--"+f.Name+"\t"+f.Help)
			}
		}
		return list
	}
	for _, child := range node.Children {
		if child.Type == kong.CommandNode && !child.Hidden {
			list = append(list, child.Name+"\t"+child.Help)
		}
	}
	if positional < len(node.Positional) {
		list = append(list, valuesOf(node.Positional[positional])...)
	}
	return list
}

func childOf(node *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name || slices.Contains(n.Aliases, name) })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

// flagOf is the flag that a word begins with.
func flagOf(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if f.Name == name || len(name) == 1 && string(f.Short) == name {
				return f
			}
		}
	}
	return nil
}

// valuesOf are the values that a flag or an argument may have, where these are few.
func valuesOf(v *kong.Value) (list []string) {
	switch v.Name {
	case "context":
		return natscontext.Names()
	case "state":
		return strings.Split(joined(inspect.States(nil)), ", ")
	case "reason":
		return strings.Split(joined(messages.Reasons), ", ")
	case "op", "operation":
		for _, op := range inspect.Operations {
			list = append(list, inspect.Short(op))
		}
		return list
	case "verb":
		return strings.Split(joined(act.Verbs), ", ")
	case "subject":
		for _, op := range inspect.Operations {
			list = append(list, op.Requested())
		}
		return list
	}
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
