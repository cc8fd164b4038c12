// Package callback stores what the e-mandate service sends to an enrollment's return_url as an event, then answers.
//
//	ReturnURL ─► return_url of an enrollment ─► the service ─► Handler ─► mandate.callback.received.<id>
//
// A callback is a hint and never the truth: the service documents neither its payload nor a signature, and anybody with
// the URL can send one. What became of an enrollment is what the transaction list says.
//
//	token.go     return_url, and whether a path is one
//	handler.go   one callback: what is accepted, how it is answered, what its event says
//	checksum.go  whether its field checksum is right
//	serve.go     the HTTP server, with limits against strangers
package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"

	"errand/internal/loopback"
	"errand/pkg/clients"
)

// ReturnURL returns what makes the return_url of a request, <base>/<request id>/<token>: nobody without the secret can make one. base is
// the receiver's address, an absolute https URL, or an http URL of this machine; any http URL if plain is set.
func ReturnURL(base string, plain bool, secret clients.Secret) (of func(id string) string, err error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Hostname() == "" || u.User != nil || strings.ContainsAny(base, "?# "):
		return nil, errors.New("must be an absolute URL without user, query and fragment, such as https://callbacks.example.com/mandates")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("must begin with https://")
	case u.Scheme == "http" && !plain && !loopback.Is(u.Hostname()):
		return nil, errors.New("must begin with https://: over http:// anybody on the way can read what the service sends of payers")
	}
	base = strings.TrimRight(base, "/")
	return func(id string) string { return base + "/" + id + "/" + token(secret, id) }, nil
}

// requestOf is the id of a path's request, by its last two segments; "" means that the token is not that request's.
func requestOf(path string, secrets []clients.Secret) string {
	parts := strings.Split(path, "/")
	if len(parts) < 3 {
		return ""
	}
	id, given, valid := parts[len(parts)-2], parts[len(parts)-1], false
	for _, secret := range secrets { // all of them: the time must not reveal which
		valid = hmac.Equal([]byte(given), []byte(token(secret, id))) || valid
	}
	if !valid {
		return ""
	}
	return id
}

// token is the first 16 bytes of the HMAC-SHA-256 of a request's id, as base64url.
func token(secret clients.Secret, id string) string {
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	_, _ = mac.Write([]byte("return_url\x00" + id)) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}
