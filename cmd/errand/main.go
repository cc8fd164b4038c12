// Command errand is the tool for people. Each command has a file of its name.
//
//	command line ─► a command's flags ─► connect.go: NATS ─► internal/oncall/inspect  read   ─► output.go: table, JSON, names
//	                                                      ─► internal/oncall/act      change
//	                                                      ─► pkg/errand               publish, wait
//	                                                      ─► follow.go                events ─► line.go: a line each
//
// connect.go also has the flags of commands that change something, output.go the terminal and its colours, fields.go the
// body that publish makes. The demo is a scenario that runs on an installation and is shown by a view. The
// build tag nodemo leaves the demo out, and with it the NATS server.
package main

import (
	"fmt"

	"github.com/alecthomas/kong"

	"errand/internal/programs"
)

func main() {
	programs.Main("errand", "Post an errand: it is run against the upstream, and its outcome is published. This is the tool for people.",
		new(cli))
}

type cli struct {
	withDemo
	Provision    provision    `cmd:"" help:"Create or update the streams and consumers that the programs need."`
	Mirror       mirror       `cmd:"" help:"Create or update a reader's own copies of the events, in its own account."`
	Sandbox      standIn      `cmd:"" help:"Serve a stand-in for both upstream services."`
	Publish      publish      `cmd:"" help:"Publish one request, and wait for its outcome with --wait."`
	Watch        watch        `cmd:"" help:"Show events as they are stored, or earlier ones."`
	Schema       schema       `cmd:"" help:"Print the JSON Schema of a request or an event, or list all."`
	Status       status       `cmd:"" help:"Show what is wrong now, programs, queues, outcomes and storage."`
	Show         show         `cmd:"" help:"Show all that is known of one request."`
	List         list         `cmd:"" help:"List requests by state, reason and time."`
	Find         find         `cmd:"" help:"Find requests by id, order number, address, or a payer's id, name or phone."`
	Stuck        stuck        `cmd:"" help:"Show requests without an outcome, and why they wait."`
	Dead         dead         `cmd:"" help:"Show dead letters, and run their requests again."`
	Retry        retryNow     `cmd:"" help:"Run a deferred request now."`
	Cancel       cancel       `cmd:"" help:"End a request before any call is made."`
	Pause        pause        `cmd:"" help:"Stop deliveries from the queue of an operation for a while."`
	Resume       resume       `cmd:"" help:"End a pause early."`
	Suppressions suppressions `cmd:"" help:"Show, add and remove addresses that nothing is sent to."`
	Erase        erase        `cmd:"" help:"Show, and remove, what is stored about a payer or a recipient."`
	Audit        audit        `cmd:"" help:"Show who did what to requests and queues, and why."`
}

// AfterApply gives commands the process's terminal. Tests give them another.
func (*cli) AfterApply(k *kong.Context) error {
	k.Bind(standard())
	return nil
}

// invalid returns the error for a wrong argument. The exit status is then 2.
func invalid(variable, format string, args ...any) error {
	return &programs.Invalid{Variable: variable, Problem: fmt.Sprintf(format, args...)}
}
