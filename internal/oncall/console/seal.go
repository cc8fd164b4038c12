package console

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
)

// sealer encrypts what a link must not show, so that only this process can read or make it. The key is made at start and stored
// nowhere: after a restart such a link leads nowhere.
type sealer struct{ aead cipher.AEAD }

func newSealer() sealer {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
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
