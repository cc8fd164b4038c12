package bus

import (
	"sync"

	"github.com/rs/zerolog"

	"errand/internal/keyfile"
)

// password is read from a file again at each connect, so that a new one needs no restart.
type password struct {
	file string
	log  zerolog.Logger

	mu   sync.Mutex
	text string
	said string // the last error
}

// now is the password to connect with. An error, which never quotes it, is logged once and not at each of two tries a second.
func (p *password) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch text, err := keyfile.Read(p.file); {
	case err == nil:
		p.text, p.said = text, ""
	case err.Error() != p.said:
		p.said = err.Error()
		p.log.Warn().Err(err).Msg("nats: NATS_PASSWORD_FILE cannot be read, the password stays the same")
	}
	return p.text
}
