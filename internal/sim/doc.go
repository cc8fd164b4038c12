// Package sim simulates whole histories of requests, hundreds a second, and holds what was published against what the
// upstreams did. It has tests only.
//
//	seed ─► script ─► world: replicas of the real program over a log, queues and upstreams in memory, in virtual time
//	  ▲                 │        people, producers, kills, partitions, weather as the script says
//	  │                 ▼
//	  └─ shrunk ◄─── oracle: lost, twice, untrue, starved? ─► a story of twenty lines
//
//	script_test.go    what happens, drawn from a seed; shrinking    world_test.go    one history, from begin to end
//	weather_test.go   what goes wrong for a while                   node_test.go     a process that can be killed at every await
//	log_test.go       the events stream                             queue_test.go    requests and dead letters
//	upstream_test.go  what becomes of a call                        mandates_test.go, mail_test.go  the two services
//	replica_test.go   the programs                                  people_test.go   who cancels, redrives, erases
//	oracle_test.go    what is promised                              story_test.go    what a failure prints
//	sim_test.go       seeds and time                                mutants_test.go  faults that must be found
//
// A wait or a fault is drawn from a hash of the seed, who waits, for what, and how often before: so a seed tells the same story
// again whatever the order of goroutines. Not simulated: a wall clock that steps, or that differs between machines (a bubble of
// testing/synctest has one clock), sockets, the server's own faults. See internal/e2e.
//
// sinktest has the pollers' store in memory, for the models of internal/lists.
package sim
