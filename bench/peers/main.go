// Command peers has what errand is compared with: other ways to take a request from its queue, call the upstream and
// publish an outcome. bench starts each as a separate process, which works until SIGTERM. They keep no history:
// after a crash all of them call again.
//
//	loop       what a person would write in an afternoon with nats.go and net/http
//	fenced     the loop with a history: an event before the call and one after it, each stored only if nothing came between
//	limit      what the machine can do: raw HTTP, no waiting for NATS
//	watermill  the same handler, run by Watermill's router with its retry middleware
//	copy       the loop over a sending log
package main

import "errand/internal/programs"

func main() {
	programs.Main("peers", "What bench compares errand with.", new(cli))
}

type cli struct {
	Loop      loop      `cmd:"" help:"The hand-written loop."`
	Fenced    fenced    `cmd:"" help:"The hand-written loop with two fenced events."`
	Limit     limit     `cmd:"" help:"Raw HTTP, and outcomes that are not waited for."`
	Watermill watermill `cmd:"" help:"Watermill's router with its retry middleware."`
	Copy      copier    `cmd:"" help:"The hand-written loop over a sending log."`
}
