// Command errand is the tool for people: it makes the streams that the programs
// need, stands in for the upstreams, publishes requests, shows what happens to
// them, and shows the whole house on one machine.
//
//	provision  the streams and consumers, as a diff that is then applied
//	sandbox    both upstreams, with pages to look at
//	demo       broker, sandbox and the three programs in one process, one story
//	publish    one request, and its outcome if asked for
//	watch      events as they come, or from the streams
package main

import "errand/internal/app"

func main() {
	app.Main("errand", "Post an errand, it is run against the upstream, hear the outcome. This is the tool for people.", new(cli))
}

type cli struct {
	withDemo
	Provision provision `cmd:"" help:"Create or update the streams and consumers that the programs need."`
	Sandbox   standIn   `cmd:"" help:"Serve a stand-in of both upstream services."`
	Publish   publish   `cmd:"" help:"Publish one request, and wait for its outcome if asked to."`
	Watch     watch     `cmd:"" help:"Show requests and events as they come, or from the streams."`
}
