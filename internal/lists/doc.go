// Package lists is the room of the two pollers, which turn a paged list into events; it has no code of its own.
//
//	a page of the list ─► sweep ─► deliveries or transactions ─► sink ─► events, the watermark
//	                        │         what a row means,
//	                        │         and whose it is
//	                        └─ what to read next, so that each state of each row is seen once
//
// sweep knows any paged list, and neither mail nor mandates. deliveries and transactions know no NATS: they are
// tested over a store in memory, which sink's tests hold to the real one. sink is the only package that writes,
// and only while it leads. No package here knows requests' handlers: both rooms share mandates and history.
package lists
