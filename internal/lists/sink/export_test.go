package sink

// InBatches has events stored as in a cluster.
func (s *Store) InBatches() { s.atomic = true }
