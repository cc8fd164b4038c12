// Command bench compares errand's consumer of enrollments, or its poller of the sending
// log, with the simplest loop that a person would write with the same client libraries,
// on one machine and over loopback only:
//
//	publish requests ─► server ◄─► contestant ◄─► upstream
//	                      └── the time from the first event stored to the last
//
// Server, upstream and contestant are separate processes, so that CPU time and memory of
// each can be measured.
package main

import "errand/internal/app"

func main() {
	app.Main("bench", "Compare errand with hand-written loops that keep no history.", new(cli))
}

type cli struct {
	Compare  compare  `cmd:"" default:"withargs" help:"Settle enrollments: run the rounds and print the results."`
	Sweep    sweep    `cmd:"" help:"Sweep a sending log for the first time: run the rounds and print the results."`
	Size     size     `cmd:"" help:"Measure what requests of each kind leave in NATS: bytes and the server's memory."`
	Server   server   `cmd:"" hidden:"" help:"Serve NATS until standard input ends."`
	Upstream upstream `cmd:"" hidden:"" help:"Answer enrollments until standard input ends."`
	Log      log      `cmd:"" hidden:"" help:"Answer with pages of a sending log until standard input ends."`
	Copy     copier   `cmd:"" hidden:"" help:"The hand-written loop over a sending log."`
	Loop     loop     `cmd:"" hidden:"" help:"The hand-written loop."`
}
