// Package bus is NATS and nothing else: it alone knows subjects of JetStream's API, headers and error codes.
//
//	Connect ─► JetStream ─► Check                     is what a program needs there?        connect, check
//	Plan ─► Apply                                     streams, consumers, readers' copies   topology, provision, readers
//	Pull ─► a Request, for its handler                one for each free worker              pull
//	EventStore.Append ─► Publisher.Publish ─┐         a history, each event fenced          events, publish
//	Publisher.Begin ─► Writes.Send ─────────┴► acks   was it stored? is silence final?      acks
//	StoreDeadLetter, Callback, LeaseStore             other writers, all by a Publisher     deadletter, callback, rate_leases
//	Last, Scan, Objects                               reads that leave no consumer behind   read, scan, object
//	Replay                                            reads all events, and then the new    replay
//	AnswerStatus ◄─ AskStatus                         programs that are asked how they are  status
//	AnswerFind ◄─ AskFind                             consoles, what their index knows      find
//
// Only acks, by readAck, decides that a message was stored or not. Every fence names the filter that all writers of its
// messages name. A new stream, subject or right belongs to topology and to deploy/nats/errand.conf.
package bus
