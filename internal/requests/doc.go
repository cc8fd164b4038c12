// Package requests is the room of what is done about a request; it has no code.
//
//	a queue ─► consumer ─► enroll, send or query ─► attempt ─► a call upstream
//	              │           decide what to do        │  hold: not now
//	              │                                    └─ history: started, before the call
//	              └─ stores the outcome, dead-letters, acknowledges; or naks with delay
//
// consumer is the only package that sees NATS. A handler (enroll, send, query) gets a request with its
// history and returns a final event or an error; it can be tested without a server. A call that changes
// something upstream is made in attempt alone, and only after its started event is stored. No package here
// knows the lists that pollers read: what the transaction list proves is in mandates.
package requests
