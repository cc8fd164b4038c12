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

// completion completes command lines. The shell's script asks the program itself, so they always agree. It is ours because
// kong-completion shows no help texts, and has not been released since 2022.
type completion struct {
	Shell string   `arg:"" enum:"bash,zsh,fish,words" help:"The shell whose script to print; words answers the script."`
	Words []string `arg:"" optional:"" passthrough:"" help:"The words of a command line so far, the last one unfinished."`
}

func (*completion) Help() string {
	return `Prints a script for the shell's start-up file.

Examples:

    source <(errand completion bash)                                          # in ~/.bashrc
    source <(errand completion zsh)                                           # in ~/.zshrc, after compinit
    errand completion fish > ~/.config/fish/completions/errand.fish`
}

func (k *completion) Run(_ context.Context, c console) error {
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

// scripts are the shells' scripts. A candidate's help follows its name after a tab.
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

// candidates returns what the last word may become, each with its help.
func candidates(node *kong.Node, words []string) (list []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	positional := 0
	var open *kong.Flag // its value comes next
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
		for _, f := range slices.Concat(node.AllFlags(true)...) {
			list = append(list, "--"+f.Name+"\t"+f.Help)
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

// flagOf returns the flag that a word names; nil means none.
func flagOf(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, f := range slices.Concat(node.AllFlags(true)...) {
		if f.Name == name || len(name) == 1 && string(f.Short) == name {
			return f
		}
	}
	return nil
}

// valuesOf returns the values of a flag or an argument if there are few.
func valuesOf(v *kong.Value) (list []string) {
	switch v.Name {
	case "context":
		return natscontext.Names()
	case "state":
		return texts(inspect.States(nil))
	case "reason":
		return texts(messages.Reasons)
	case "op", "operation":
		for _, op := range inspect.Operations {
			list = append(list, inspect.Short(op))
		}
		return list
	case "verb":
		return texts(act.Verbs)
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
