// Command bench measures errand's consumer of enrollments beside the plainest loop
// that a person would write over the same client libraries, on one machine and over
// loopback only:
//
//	publish requests ─► server ◄─► contestant ◄─► upstream
//	                      └── the time from the first event stored to the last outcome
//
// Server, upstream and contestant are processes of their own, so that the processor
// time and the memory of each are told apart.
package main

import "errand/internal/app"

func main() {
	app.Main("bench", "Measure errand's consumer beside a hand-written loop that keeps no history.", new(cli))
}

type cli struct {
	Compare  compare  `cmd:"" default:"withargs" help:"Run the rounds and print the figures."`
	Server   server   `cmd:"" hidden:"" help:"Serve NATS until standard input ends."`
	Upstream upstream `cmd:"" hidden:"" help:"Answer enrollments until standard input ends."`
	Loop     loop     `cmd:"" hidden:"" help:"The hand-written loop."`
}
