package bus

import (
	"sync"

	"github.com/rs/zerolog"

	"errand/internal/keyfile"
)

// password is one that is kept in a file and read again at each connect, so that a new
// one needs no restart.
type password struct {
	file string
	log  zerolog.Logger

	mu   sync.Mutex
	text string
	said string // what was wrong the last time
}

// read takes the password from the file; with an error, which never quotes it, that of
// before stays.
func (p *password) read() error {
	text, err := keyfile.Read(p.file)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		return err
	}
	p.text = text
	return nil
}

// now is the password to connect with. What keeps the file from being read is told once,
// not at each of two tries a second.
func (p *password) now() string {
	err, wrong := p.read(), ""
	if err != nil {
		wrong = err.Error()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if wrong != "" && wrong != p.said {
		p.log.Warn().Err(err).Msg("nats: NATS_PASSWORD_FILE cannot be read again, the password of before is kept")
	}
	p.said = wrong
	return p.text
}
