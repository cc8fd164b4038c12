// Command bench measures what errand costs, on one machine and over loopback only:
//
//	publish requests ─► server ◄─► contestant ◄─► upstream
//	                       └── CPU time, memory, events ──► tables
//
// Server, upstream and contestant are separate processes, so that CPU time and memory of each can be measured, on Linux only. It is
// a separate module, so that what errand is compared with is not in the programs' go.mod.
package main

import "errand/internal/programs"

func main() {
	programs.Main("bench", "Measure what errand costs beside other ways to do the same work.", new(cli))
}

type cli struct {
	Compare  compare  `cmd:"" default:"withargs" help:"Compare errand with a hand-written loop and Watermill."`
	Server   server   `cmd:"" hidden:"" help:"Serve NATS until standard input ends."`
	Upstream upstream `cmd:"" hidden:"" help:"Answer enrollments and messages until standard input ends."`
	Log      log      `cmd:"" hidden:"" help:"Answer with pages of a sending log until standard input ends."`
}
