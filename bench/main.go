// Command bench measures errand's consumer of enrollments, or its poller of the sending
// log, beside the plainest loop that a person would write over the same client
// libraries, on one machine and over loopback only:
//
//	publish requests ─► server ◄─► contestant ◄─► upstream
//	                      └── the time from the first event stored to the last
//
// Server, upstream and contestant are processes of their own, so that the processor
// time and the memory of each are told apart.
package main

import "errand/internal/app"

func main() {
	app.Main("bench", "Measure errand beside hand-written loops that remember nothing.", new(cli))
}

type cli struct {
	Compare  compare  `cmd:"" default:"withargs" help:"Settle enrollments: run the rounds and print the figures."`
	Sweep    sweep    `cmd:"" help:"Sweep a sending log from empty: run the rounds and print the figures."`
	Server   server   `cmd:"" hidden:"" help:"Serve NATS until standard input ends."`
	Upstream upstream `cmd:"" hidden:"" help:"Answer enrollments until standard input ends."`
	Log      log      `cmd:"" hidden:"" help:"Answer with pages of a sending log until standard input ends."`
	Copy     copier   `cmd:"" hidden:"" help:"The hand-written loop over a sending log."`
	Loop     loop     `cmd:"" hidden:"" help:"The hand-written loop."`
}
