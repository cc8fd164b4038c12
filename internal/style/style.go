// Package style is what the project's pages share: their style sheet and their icon. It
// imports nothing of the project, so that every page may have it.
package style

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // of the files below
	"encoding/hex"
	"net/http"
	"time"
)

//go:embed style.css
var style []byte

//go:embed icon.svg
var icon []byte

// Asset is a file that pages link to. Its path changes with its contents, so that browsers
// may keep it for good.
type Asset struct {
	Path string
	Type string
	Body []byte
}

// The style sheet, and the icon that browsers show beside a title.
var (
	Style = New("look", ".css", "text/css; charset=utf-8", style)
	Icon  = New("icon", ".svg", "image/svg+xml", icon)
)

// New is an asset at /<name>-<hash of its contents><extension>.
func New(name, extension, contentType string, body []byte) Asset {
	sum := sha256.Sum256(body)
	return Asset{Path: "/" + name + "-" + hex.EncodeToString(sum[:6]) + extension, Type: contentType, Body: body}
}

// ServeHTTP serves the contents.
func (a Asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", a.Type)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.Body))
}
