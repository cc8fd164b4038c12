package programs

import (
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"errand/pkg/clients"
)

// reload reads secrets from their files again when the upstream refuses them, so that a new secret needs no restart.
type reload struct {
	every time.Duration // minimum time between two reloads: the interval of probes
	log   zerolog.Logger
	// secrets sets the client's secrets to the current ones and reports whether any has changed. After an error, which
	// quotes no secret, the client keeps those it has. nil means that no secret is in a file.
	secrets func() (changed bool, err error)

	mu        sync.Mutex
	next      time.Time // no reload before
	lastError string    // of the last reload; "" if there was none
}

// observe is called with every call to the upstream.
func (r *reload) observe(c clients.Call) {
	if r.secrets == nil || c.Fate != clients.Held || c.Status != http.StatusUnauthorized && c.Status != http.StatusForbidden {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(r.every)
	changed, err := r.secrets()
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	switch {
	case problem != "" && problem != r.lastError:
		r.log.Warn().Err(err).Msg("secrets cannot be read again, the old ones are kept")
	case changed:
		r.log.Info().Int("status", c.Status).Msg("credentials reloaded")
	}
	r.lastError = problem
}
