// Package e2e holds the scenarios: the programs against a real NATS server and a
// stand-in of the upstream services that knows what was really done.
//
// A file is named by its area: enroll_, send_, query_, correction_, giveup_, unknown_ (calls of unknown fate), golden_
// (whole histories on file), hold_, poller_, crash_, startup_, shutdown_, broker_ (NATS), wire_ (HTTP), badinput_,
// bounds_ (memory, concurrency), security_, storm_. Helpers that several files use are in harness_ files. Run one
// scenario by its name, with what it logs:
//
//	go test ./internal/e2e -run '^TestOutageHoldsTheProgramUntilItIsOver$' -v
//
// A bubble (inBubble, harness_bubble_test.go) is an installation in virtual time and in this process: hours pass in a
// second. An installation (install, harness_installation_test.go) runs the programs as processes in real time, so that
// they can be killed and stopped. Both publish requests, break something, wait for events and compare them with the
// sandbox's oracle. Write a new scenario as a bubble unless it needs signals, sockets or the memory of a program; call
// full when it takes seconds.
package e2e
