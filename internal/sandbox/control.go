package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// controls is the control interface. Its calls are neither counted nor failed.
func (s *Sandbox) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sandbox/faults", s.getFaults)
	mux.HandleFunc("POST /_sandbox/faults", s.postFaults)
	mux.HandleFunc("DELETE /_sandbox/faults", s.deleteFaults)
	mux.HandleFunc("GET /_sandbox/settings", func(w http.ResponseWriter, _ *http.Request) { tell(w, s.Settings()) })
	mux.HandleFunc("PUT /_sandbox/settings", s.putSettings)
	mux.HandleFunc("POST /_sandbox/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		tell(w, map[string]bool{"reset": true})
	})
	mux.HandleFunc("GET /_sandbox/oracle", s.getOracle)
	mux.HandleFunc("POST /_sandbox/log", s.postLog)
	mux.HandleFunc("POST /_sandbox/decide", s.postDecide)
	mux.HandleFunc("GET /_sandbox/help", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, Help)
	})
	return mux
}

func (s *Sandbox) getFaults(w http.ResponseWriter, _ *http.Request) {
	tell(w, map[string]any{"faults": s.Faults(), "fired": s.faults.counts()})
}

// postFaults takes one rule, or an array of them: all or none.
func (s *Sandbox) postFaults(w http.ResponseWriter, r *http.Request) {
	items, err := objects(r)
	if err != nil {
		wrong(w, err)
		return
	}
	rules := make([]Fault, len(items))
	for i, item := range items {
		err := strict(item, &rules[i])
		if err == nil {
			err = rules[i].check()
		}
		if err != nil {
			wrong(w, fmt.Errorf("fault %d: %w", i+1, err))
			return
		}
	}
	ids := []int{}
	for _, rule := range rules {
		id, _ := s.AddFault(rule) // checked above
		ids = append(ids, id)
	}
	tell(w, map[string]any{"ids": ids})
}

func (s *Sandbox) deleteFaults(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("id")
	if text == "" {
		s.ClearFaults()
		tell(w, map[string]bool{"cleared": true})
		return
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		wrong(w, fmt.Errorf("id: %w", err))
		return
	}
	tell(w, map[string]bool{"cleared": s.ClearFault(id)})
}

// putSettings changes the settings that the body names, and leaves the others.
func (s *Sandbox) putSettings(w http.ResponseWriter, r *http.Request) {
	body, err := controlBody(r)
	if err != nil {
		wrong(w, err)
		return
	}
	probe := s.Settings()
	if err := strict(body, &probe); err != nil {
		wrong(w, err)
		return
	}
	if err := s.Set(func(v *Settings) { _ = strict(body, v) }); err != nil { // read above
		wrong(w, err)
		return
	}
	tell(w, s.Settings())
}

func (s *Sandbox) getOracle(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	summary, _ := strconv.ParseBool(query.Get("summary")) // anything else is no
	rows, _ := strconv.ParseBool(query.Get("log"))
	tell(w, s.Oracle(Query{OrderNumber: query.Get("order_number"), Recipient: query.Get("recipient"), Summary: summary, Log: rows}))
}

// postLog takes one row, or an array of them; ?verbatim=1 completes nothing.
func (s *Sandbox) postLog(w http.ResponseWriter, r *http.Request) {
	verbatim, _ := strconv.ParseBool(r.URL.Query().Get("verbatim")) // anything else is no
	rows, err := objects(r)
	if err != nil {
		wrong(w, err)
		return
	}
	for i, row := range rows {
		if err := s.InsertLog(row, verbatim); err != nil {
			wrong(w, fmt.Errorf("row %d: %w", i+1, err))
			return
		}
	}
	tell(w, map[string]int{"inserted": len(rows)})
}

func (s *Sandbox) postDecide(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		OrderNumber string `json:"order_number"`
		Decision    string `json:"decision"`
	}
	body, err := controlBody(r)
	if err == nil {
		err = strict(body, &asked)
	}
	if err == nil {
		err = s.Decide(asked.OrderNumber, asked.Decision)
	}
	switch {
	case errors.Is(err, ErrDecided):
		complain(w, http.StatusConflict, err)
	case err != nil:
		wrong(w, err)
	default:
		tell(w, map[string]bool{"decided": true})
	}
}

// controlBody reads a control body of at most 64 MiB.
func controlBody(r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(nil, r.Body, bodyLimit))
}

// objects reads a body that is one JSON value or an array of them.
func objects(r *http.Request) ([]json.RawMessage, error) {
	body, err := controlBody(r)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		var list []json.RawMessage
		err = json.Unmarshal(body, &list)
		return list, err
	}
	return []json.RawMessage{body}, nil
}

// strict reads JSON in which every name must be known: a typo in a script would
// otherwise be a fault that never fires.
func strict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func tell(w http.ResponseWriter, value any) {
	w.Header()["Content-Type"] = jsonType
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // a caller that left is its own business
}

func wrong(w http.ResponseWriter, err error) { complain(w, http.StatusBadRequest, err) }

func complain(w http.ResponseWriter, status int, err error) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // likewise
}
