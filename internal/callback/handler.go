package callback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"errand/internal/bus"
	"errand/internal/retry"
	"errand/pkg/clients"
	"errand/pkg/messages"
)

// Handler answers callbacks: GET and POST on <anything>/<request id>/<token>.
//
//	200  it is stored, or was before
//	404  the token is not the request's: nothing else was looked at
//	405  neither GET nor POST
//	400  the body is cut
//	408  the body took too long
//	413  the body is larger than 64 KiB
//	414  the query is longer than 8 KiB
//	429  too many for one request
//	503  it is not stored: send it again
type Handler struct {
	// Secrets are the secrets that tokens were made with, now and before: see ReturnURL.
	Secrets []clients.Secret
	// Checksum is the secret that the service signs with; empty if it is not known.
	Checksum     clients.Secret
	WithoutPayer bool // events hold nothing of what was sent
	// Store stores a callback of a request, once for each digest. Errors: bus.ErrManyCallbacks, or why
	// it is not known to be stored.
	Store func(ctx context.Context, request string, body *messages.CallbackBody) error
	// Answered, if set, is called with the status of each answer and the callback's request; "" if its token is not valid.
	Answered func(request string, status int)

	once   sync.Once
	places chan struct{}
	mu     sync.Mutex
	limits map[string]*rate.Limiter // by request
}

// What is accepted.
const (
	maxBody  = 64 << 10
	maxQuery = 8 << 10
	// maxPlaces is how many callbacks are read and stored at once.
	maxPlaces = 256
	// crowd is how many may be read at leisure. Beyond it each must come quickly: slow ones leave the other places free.
	crowd = maxPlaces / 2
	// perRequest is how many callbacks a second one request may have; burst, how many at once.
	perRequest, burst = 1, 10
	// maxLimits is for how many requests that is counted.
	maxLimits = 10_000
)

// ServeHTTP answers one callback.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := requestOf(r.URL.Path, h.Secrets)
	status := h.answer(w, r, request)
	if status >= http.StatusTooManyRequests {
		w.Header().Set("Retry-After", strconv.Itoa(int(retry.Callback/time.Second)))
	}
	http.Error(w, http.StatusText(status), status) // its text is for people, with 200 too
	if h.Answered != nil {
		h.Answered(request, status)
	}
}

func (h *Handler) answer(w http.ResponseWriter, r *http.Request, request string) int {
	switch {
	case request == "":
		return http.StatusNotFound
	case r.Method != http.MethodGet && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		return http.StatusMethodNotAllowed
	case len(r.URL.RawQuery) > maxQuery:
		return http.StatusRequestURITooLong
	case !h.allow(request):
		return http.StatusTooManyRequests
	}
	if !h.enter(r.Context()) {
		return http.StatusServiceUnavailable
	}
	defer func() { <-h.places }()
	body, status := h.read(w, r)
	if status != http.StatusOK {
		return status
	}
	// It is stored even if its sender has hung up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), retry.Callback)
	defer cancel()
	switch err := h.Store(ctx, request, h.bodyOf(r, body)); {
	case errors.Is(err, bus.ErrManyCallbacks):
		return http.StatusTooManyRequests
	case err != nil:
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// enter takes a place, and waits a moment for one.
func (h *Handler) enter(ctx context.Context) bool {
	h.once.Do(func() { h.places = make(chan struct{}, maxPlaces) })
	ctx, cancel := context.WithTimeout(ctx, retry.CallbackCrowd)
	defer cancel()
	select {
	case h.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// read reads the body that was sent; with a status other than 200 there is none to store.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (body []byte, status int) {
	if r.ContentLength > maxBody {
		return nil, http.StatusRequestEntityTooLarge
	}
	within := retry.CallbackRead
	if len(h.places) > crowd {
		within = retry.CallbackCrowd
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(within)) // otherwise the server's deadline counts
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		return nil, http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout
	case err != nil:
		return nil, http.StatusBadRequest
	}
	return body, http.StatusOK
}

// allow reports whether another callback of a request is accepted now.
func (h *Handler) allow(request string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := h.limits[request]
	if limit == nil {
		if len(h.limits) >= maxLimits || h.limits == nil { // forgetting is safe: what is stored of a request is limited, too
			h.limits = map[string]*rate.Limiter{}
		}
		limit = rate.NewLimiter(perRequest, burst)
		h.limits[request] = limit
	}
	return limit.Allow()
}

// bodyOf is the event of what was sent.
func (h *Handler) bodyOf(r *http.Request, sent []byte) *messages.CallbackBody {
	contentType, query := r.Header.Get("Content-Type"), r.URL.RawQuery
	b := &messages.CallbackBody{Method: r.Method, ContentType: contentType, Query: queryText(query), Bytes: len(sent),
		Digest: digest(r.Method, query, sent), Checksum: checksum(h.Checksum, contentType, query, sent)}
	switch {
	case h.WithoutPayer:
		b.ContentType, b.Query, b.Encoding = "", "", messages.CallbackWithheld
	case len(sent) == 0:
	case isText(sent):
		b.Body, b.Encoding = string(sent), messages.CallbackText
	default:
		b.Body, b.Encoding = base64.StdEncoding.EncodeToString(sent), messages.CallbackBase64
	}
	return b
}

// queryText is a query with bytes that are not UTF-8 escaped: otherwise the event would lose them.
func queryText(query string) string {
	if utf8.ValidString(query) {
		return query
	}
	var text strings.Builder
	for _, b := range []byte(query) {
		if b < utf8.RuneSelf {
			text.WriteByte(b)
		} else {
			fmt.Fprintf(&text, "%%%02X", b)
		}
	}
	return text.String()
}

// isText reports whether a body is text, which as JSON is at most twice as long.
func isText(body []byte) bool {
	return utf8.Valid(body) && !bytes.ContainsFunc(body, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\u2028' || r == '\u2029'
	})
}

// digest distinguishes callbacks, and is the same when one is repeated.
func digest(method, query string, body []byte) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(method), []byte(query), body}, []byte{0}))
	return hex.EncodeToString(sum[:])
}
