// Package e2e holds the scenarios: the programs against a real NATS server and a stand-in of the upstream services
// that knows what was really done.
//
// A file is named by its area: enroll_, send_, query_, correction_, redrive_, giveup_, unknown_ (calls of unknown
// fate), golden_ (whole histories on file), hold_, rate_, poller_ and transactions_ (the lists), callback_, crash_,
// startup_, shutdown_, broker_ (NATS), wire_ (HTTP), badinput_, bounds_ (memory, concurrency), security_, privacy_,
// oncall_, storm_. Helpers that several files use are in harness_ files. Run one scenario by its name, with its log:
//
//	go test ./internal/e2e -run '^TestOutageHoldsTheProgramUntilItIsOver$' -v
//
// A bubble (inBubble, harness_bubble_test.go) is an installation in virtual time and in this process: hours pass in a
// second. An installation (install, harness_installation_test.go) runs the programs as processes in real time, so that
// they can be killed and stopped. What both can do is in harness_world_test.go: publish a request, break something,
// wait for events, and compare them with the sandbox's oracle. What the tests ask of a kind of request is in operations
// (harness_requests_test.go), and what reached the services in upstream (harness_upstream_test.go). Write a new
// scenario as a bubble unless it needs signals, sockets or the memory of a program; call full when it takes seconds.
package e2e
