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

// controlHandler serves the control interface. Its calls are not counted, and no
// fault applies to them.
func (s *Sandbox) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sandbox/faults", s.getFaults)
	mux.HandleFunc("POST /_sandbox/faults", s.postFaults)
	mux.HandleFunc("DELETE /_sandbox/faults", s.deleteFaults)
	mux.HandleFunc("GET /_sandbox/settings", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Settings()) })
	mux.HandleFunc("PUT /_sandbox/settings", s.putSettings)
	mux.HandleFunc("POST /_sandbox/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		writeJSON(w, map[string]bool{"reset": true})
	})
	mux.HandleFunc("GET /_sandbox/oracle", s.getOracle)
	mux.HandleFunc("POST /_sandbox/log", s.postLog)
	mux.HandleFunc("POST /_sandbox/decide", s.postDecide)
	mux.HandleFunc("POST /_sandbox/cycle", s.postCycle)
	mux.HandleFunc("GET /_sandbox/help", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, Help)
	})
	return mux
}

func (s *Sandbox) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"faults": s.Faults(), "fired": s.faults.counts()})
}

// postFaults adds one rule or an array of them. If one is wrong, none is added.
func (s *Sandbox) postFaults(w http.ResponseWriter, r *http.Request) {
	items, err := readOneOrMany(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	rules := make([]Fault, len(items))
	for i, item := range items {
		err := decodeStrict(item, &rules[i])
		if err == nil {
			err = rules[i].check()
		}
		if err != nil {
			badRequest(w, fmt.Errorf("fault %d: %w", i+1, err))
			return
		}
	}
	ids := []int{}
	for _, rule := range rules {
		id, _ := s.AddFault(rule) // checked above
		ids = append(ids, id)
	}
	writeJSON(w, map[string]any{"ids": ids})
}

func (s *Sandbox) deleteFaults(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("id")
	if text == "" {
		s.ClearFaults()
		writeJSON(w, map[string]bool{"cleared": true})
		return
	}
	id, err := strconv.Atoi(text)
	if err != nil {
		badRequest(w, fmt.Errorf("id: %w", err))
		return
	}
	writeJSON(w, map[string]bool{"cleared": s.ClearFault(id)})
}

// putSettings changes only the settings that the body names.
func (s *Sandbox) putSettings(w http.ResponseWriter, r *http.Request) {
	body, err := controlBody(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	trial := s.Settings()
	if err := decodeStrict(body, &trial); err != nil {
		badRequest(w, err)
		return
	}
	if err := s.Set(func(v *Settings) { _ = decodeStrict(body, v) }); err != nil { // decoded once above
		badRequest(w, err)
		return
	}
	writeJSON(w, s.Settings())
}

func (s *Sandbox) getOracle(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	summary, _ := strconv.ParseBool(query.Get("summary")) // unreadable is false
	rows, _ := strconv.ParseBool(query.Get("log"))
	records, _ := strconv.ParseBool(query.Get("records"))
	writeJSON(w, s.Oracle(Query{OrderNumber: query.Get("order_number"), Recipient: query.Get("recipient"), Summary: summary, Log: rows,
		Records: records}))
}

// postLog adds one row or an array of them; with ?verbatim=1 nothing is filled in.
func (s *Sandbox) postLog(w http.ResponseWriter, r *http.Request) {
	verbatim, _ := strconv.ParseBool(r.URL.Query().Get("verbatim")) // unreadable is false
	rows, err := readOneOrMany(r)
	if err != nil {
		badRequest(w, err)
		return
	}
	for i, row := range rows {
		if err := s.InsertLog(row, verbatim); err != nil {
			badRequest(w, fmt.Errorf("row %d: %w", i+1, err))
			return
		}
	}
	writeJSON(w, map[string]int{"inserted": len(rows)})
}

func (s *Sandbox) postDecide(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		OrderNumber string `json:"order_number"`
		Decision    string `json:"decision"`
	}
	body, err := controlBody(r)
	if err == nil {
		err = decodeStrict(body, &asked)
	}
	if err == nil {
		err = s.Decide(asked.OrderNumber, asked.Decision)
	}
	switch {
	case errors.Is(err, ErrDecided):
		writeError(w, http.StatusConflict, err)
	case err != nil:
		badRequest(w, err)
	default:
		writeJSON(w, map[string]bool{"decided": true})
	}
}

func controlBody(r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(nil, r.Body, bodyLimit))
}

// readOneOrMany reads a body that is one JSON value or an array of them.
func readOneOrMany(r *http.Request) ([]json.RawMessage, error) {
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

// decodeStrict refuses unknown names: a typo in a script would otherwise be a
// fault that never fires.
func decodeStrict(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header()["Content-Type"] = jsonType
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(value) // fails only when the caller is gone
}

func badRequest(w http.ResponseWriter, err error) { writeError(w, http.StatusBadRequest, err) }

func writeError(w http.ResponseWriter, status int, err error) {
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // fails only when the caller is gone
}
