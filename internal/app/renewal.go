package app

import (
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

// renewal reads the secrets that are given as files again when the upstream refuses
// them, so that a new one needs no restart. The zero value never reads.
type renewal struct {
	every time.Duration // at most so often: as a held upstream is probed
	log   zerolog.Logger
	// again gives the client the secrets as they are now and reports whether any is
	// another one; with an error, which quotes none, the client keeps those it has.
	// nil: no secret is a file.
	again func() (changed bool, err error)

	mu   sync.Mutex
	next time.Time // not before
	said string    // what was wrong the last time
}

// saw is told of every call to the upstream.
func (r *renewal) saw(c clients.Call) {
	if r.again == nil || c.Fate != clients.Held || c.Status != http.StatusUnauthorized && c.Status != http.StatusForbidden {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(r.every)
	changed, err := r.again()
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	switch {
	case wrong != "" && wrong != r.said:
		r.log.Warn().Err(err).Msg("secrets cannot be read again, those of before are kept")
	case changed:
		r.log.Info().Int("status", c.Status).Msg("secrets read again: there are new ones")
	}
	r.said = wrong
}
