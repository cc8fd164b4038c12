// Package oncall is the room of what people do about requests; it has no code.
//
//	cmd/errand ──┬─► inspect ─► streams and queues: what is wrong, what became of a request
//	             └─► act ─────► redrive, cancel, pause, erase; each recorded in AUDIT before and after
//	console ─► access ─► the same two, as pages; index ─► finds requests without reading streams
//
// inspect only reads. act changes something, and only as a person agreed to: what a plan did not show
// is not done. The index writes nothing but its file, and can be deleted at any time. Only the console
// links SQLite, so nothing but the console imports the index.
package oncall
