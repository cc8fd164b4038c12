package messages

import (
	"io"
	"iter"
)

func (r *SendRequest) Addresses() iter.Seq[string] { return func(func(string) bool) {} }

func Lines(r io.Reader) iter.Seq2[string, error] { return func(func(string, error) bool) {} }

func ParseRecipient(text string) (address string, err error) { return text, nil }

func RecipientKey(address string) [16]byte { return [16]byte{} }
