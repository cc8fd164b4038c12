package console

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/inspect"
	"errand/internal/wire"
	"errand/internal/wire/mailkey"
	"errand/pkg/messages"
)

type findPage struct {
	Asked bool
	inspect.Finding
	Note string

	Suppress *suppressible // nil if the word is not an address, or its keys are not known
}

// suppressible is an address, and the last word on whether it is written to.
type suppressible struct {
	Token   string // of the address
	Last    *bus.Suppression
	InForce string
}

func (s *Server) findForm(*http.Request, access.User) (page, error) {
	return page{Title: "Find", Nav: "/find", Name: "find", Data: findPage{}}, nil
}

// startFind redirects to the page of results. Its address does not show the word, which may be a person's e-mail address:
// browsers and proxies keep addresses.
func (s *Server) startFind(r *http.Request, _ access.User) (string, error) {
	word := strings.TrimSpace(r.FormValue("word"))
	switch {
	case word == "":
		return "", wrong("Enter a request id, an order number, an e-mail address, or a payer's id, name or phone number.")
	case utf8.RuneCountInString(word) > wire.MaxLine:
		return "", wrong("No id, order number, address or name is that long.")
	}
	return "/find/" + url.PathEscape(s.sealer.seal(word)), nil
}

func (s *Server) found(r *http.Request, user access.User) (page, error) {
	word, err := s.sealer.open(r.PathValue("token"))
	if err != nil {
		return page{}, refusal(http.StatusNotFound, "The link is no longer valid",
			"Another console made it, or this one has restarted since. Search again.")
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second) // one that may not read their secret does not wait for it
	asked := s.secrets.Sought(ctx, word)
	cancel()
	known, err := s.index.Find(r.Context(), asked)
	if err != nil {
		return page{}, err
	}
	p := findPage{Asked: true}
	p.Finding, err = s.reader.Find(r.Context(), word, s.secrets, time.Now(), known) // since now, as the index has all before
	long, isLong := errors.AsType[*inspect.SkippedError](p.Hidden)
	switch {
	case err != nil:
		p.Note = "This is what the index knows: " + s.errorPage(err).Title + "."
	case isLong:
		p.Note = "There may be more: " + long.Error() + "."
	case known.More:
		p.Note = "There is more: this is the newest of it."
	}
	if keys := s.keysOf(r, word); len(keys) > 0 && user.May(access.Act) {
		if last, err := bus.SuppressionOf(r.Context(), s.reader.Conn, keys...); err == nil {
			p.Suppress = &suppressible{r.PathValue("token"), last, inspect.Suppressing(s.watch.get().Status.Programs)}
		}
	}
	return page{Title: "Find", Nav: "/find", Name: "find", Data: p}, nil
}

// keysOf are the keys of a word that is an address. A console that may not read their secret does not wait for it.
func (s *Server) keysOf(r *http.Request, word string) []mailkey.Key {
	if _, err := messages.ParseRecipient(word); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	return s.secrets.KeysOf(ctx, word)
}

// suppress has nothing sent to the address that was found, or has it written to again.
func (s *Server) suppress(r *http.Request, p act.Person) (string, error) {
	token := r.PathValue("token")
	word, err := s.sealer.open(token)
	if err == nil {
		err = p.Suppress(r.Context(), s.keysOf(r, word), r.FormValue("do") == "remove", r.FormValue("why"))
	}
	return "/find/" + token, err
}

// sealer encrypts what a link must not show, so that only this process can read or make it. The key is made at start and stored
// nowhere: after a restart such a link leads nowhere.
type sealer struct{ aead cipher.AEAD }

func newSealer() sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key)                          // never fails
	block, _ := aes.NewCipher(key)                 // 32 bytes are a key
	aead, _ := cipher.NewGCMWithRandomNonce(block) // it is for AES
	return sealer{aead}
}

func (s sealer) seal(text string) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, []byte(text), nil)) //nolint:gosec // it makes the nonce
}

// open returns what was sealed, or an error for a text that this sealer did not make.
func (s sealer) open(text string) (string, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", err
	}
	plain, err := s.aead.Open(nil, nil, sealed, nil)
	return string(plain), err
}
