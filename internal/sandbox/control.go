package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// controlHandler serves the control interface. Its calls are not counted, and no fault applies to them.
func (s *Sandbox) controlHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /_sandbox/faults":    s.getFaults,
		"POST /_sandbox/faults":   s.postFault,
		"DELETE /_sandbox/faults": s.deleteFaults,
		"GET /_sandbox/settings":  func(*http.Request) (any, error) { return s.Settings(), nil },
		"PUT /_sandbox/settings":  s.putSettings,
		"GET /_sandbox/oracle":    s.getOracle,
		"POST /_sandbox/decide":   s.postDecide,
		"POST /_sandbox/cycle":    s.postCycle,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			switch value, err := answer(r); {
			case errors.Is(err, ErrDecided):
				writeError(w, http.StatusConflict, err)
			case err != nil:
				writeError(w, http.StatusBadRequest, err)
			default:
				writeJSON(w, http.StatusOK, value)
			}
		})
	}
	mux.HandleFunc("GET /_sandbox/help", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, Help)
	})
	return mux
}

func (s *Sandbox) getFaults(*http.Request) (any, error) {
	return map[string]any{"faults": s.Faults(), "fired": s.faults.counts()}, nil
}

func (s *Sandbox) postFault(r *http.Request) (any, error) {
	var rule Fault
	err := controlBody(r, &rule)
	if err == nil {
		err = s.AddFault(rule)
	}
	return map[string]bool{"added": true}, err
}

func (s *Sandbox) deleteFaults(*http.Request) (any, error) {
	s.ClearFaults("*")
	return map[string]bool{"cleared": true}, nil
}

// putSettings changes only the settings that the body names.
func (s *Sandbox) putSettings(r *http.Request) (any, error) {
	var body json.RawMessage
	if err := controlBody(r, &body); err != nil {
		return nil, err
	}
	err := s.change(func(v *Settings) error { return decodeStrict(bytes.NewReader(body), v) })
	return s.Settings(), err
}

func (s *Sandbox) getOracle(r *http.Request) (any, error) {
	summary, _ := strconv.ParseBool(r.URL.Query().Get("summary")) // unreadable is false
	return s.Oracle(Query{Summary: summary}), nil
}

func (s *Sandbox) postDecide(r *http.Request) (any, error) {
	var asked struct {
		OrderNumber string `json:"order_number"`
		Decision    string `json:"decision"`
	}
	err := controlBody(r, &asked)
	if err == nil {
		err = s.Decide(asked.OrderNumber, asked.Decision)
	}
	return map[string]bool{"decided": true}, err
}

// controlBody reads a body of the control interface.
func controlBody(r *http.Request, into any) error {
	return decodeStrict(http.MaxBytesReader(nil, r.Body, bodyLimit), into)
}

// decodeStrict refuses unknown names: a typo in a script would otherwise be a fault that never fires.
func decodeStrict(from io.Reader, into any) error {
	decoder := json.NewDecoder(from)
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // fails only when the caller is gone
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

// guarded serves only callers that mean this sandbox: any page open in a browser could script it by a form, or by a name
// that it lets point here.
func (s *Sandbox) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !s.isOwnHost(r.Host):
			writeError(w, http.StatusForbidden, errors.New("the Host is not this sandbox: use its address, or name the host with SANDBOX_HOSTS"))
		case foreignOrigin(r):
			writeError(w, http.StatusForbidden, errors.New("the Origin is another one: a page elsewhere may not control the sandbox"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isOwnHost reports whether a Host header names this sandbox: by an address, which no page has as its name, or by a name of
// the Options.
func (s *Sandbox) isOwnHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	public, _ := url.Parse(s.o.PublicURL) // checked where it is set; an empty one has no host
	named := func(host string) bool { return strings.EqualFold(host, name) }
	return name != "" && (named("localhost") || net.ParseIP(name) != nil || public != nil && named(public.Hostname()) ||
		slices.ContainsFunc(s.o.Hosts, named))
}

// foreignOrigin reports whether a browser says that another page than ours made the call; Check looks at no read.
func foreignOrigin(r *http.Request) bool {
	return http.NewCrossOriginProtection().Check(&http.Request{Method: http.MethodPost, Header: r.Header, Host: r.Host}) != nil
}
