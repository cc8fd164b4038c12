// Command errand is the tool for people: it creates the streams that the programs
// need, stands in for the upstreams, publishes requests, shows their events, and runs
// a whole installation on one machine.
//
//	provision  shows the changes to streams and consumers, then applies them
//	mirror     makes a reader's own copies of the events
//	sandbox    serves both upstreams, with pages for people
//	demo       runs NATS, sandbox and the programs in one process
//	publish    publishes one request and waits for its outcome if asked to
//	watch      shows events as they are stored, or from before
//	schema     prints the JSON Schema of a request or an event
//	status     shows what is wrong, and how everything is
//	show       shows all that is known of one request
//	list       shows requests by state, reason and time
//	find       finds them by order number or address
//	stuck      shows what waits, and why
//	dead       shows dead letters, and redrives them
//	cancel     ends a request before any call is made
//	pause      has a queue give out nothing for a while
//	resume     ends a pause
//	erase      removes what is stored of a person
//	audit      shows who did what, and why
//	completion has a shell complete its command line
package main

import "errand/internal/programs"

func main() {
	programs.Main("errand", "Post an errand: it is run against the upstream, and its outcome is published. This is the tool for people.", new(cli))
}

type cli struct {
	withDemo
	Provision provision `cmd:"" help:"Create or update the streams and consumers that the programs need."`
	Mirror    mirror    `cmd:"" help:"Create or update a reader's own copies of the events, in its own account."`
	Sandbox   standIn   `cmd:"" help:"Serve a stand-in for both upstream services."`
	Publish   publish   `cmd:"" help:"Publish one request, and wait for its outcome if asked to."`
	Watch     watch     `cmd:"" help:"Show events as they are stored, or from before."`
	Schema    schema    `cmd:"" help:"Print the JSON Schema of a request or an event, or list those there are."`
	Status    status    `cmd:"" help:"Show what is wrong now, programs, queues, outcomes and storage."`
	Show      show      `cmd:"" help:"Show all that is known of one request."`
	List      list      `cmd:"" help:"List requests by state, reason and time."`
	Find      find      `cmd:"" help:"Find requests by order number or e-mail address."`
	Stuck     stuck     `cmd:"" help:"Show the requests that wait, and why."`
	Dead      dead      `cmd:"" help:"Show dead letters, and have their requests run again."`
	Cancel    cancel    `cmd:"" help:"End a request before any call is made."`
	Pause     pause     `cmd:"" help:"Have the queue of an operation give out nothing for a while."`
	Resume    resume    `cmd:"" help:"End a pause before its time."`
	Erase     erase     `cmd:"" help:"Show, and remove, what is stored of a payer or a recipient."`
	Audit     audit     `cmd:"" help:"Show who did what to requests and queues, and why."`

	Completion completion `cmd:"" help:"Have bash, zsh or fish complete the command line."`
}
