package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"errand/internal/oncall/access"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
)

// findPage is the form, and what was found.
type findPage struct {
	Asked bool
	// Of is what kind of thing was looked for; the thing itself is on no page.
	Of     string
	Found  []foundRow
	Mails  []index.Mail
	Unread []string
	Note   string
}

// foundRow is a request that was found.
type foundRow struct {
	index.Row
	As   []index.As
	Mail *index.Mail
}

func (s *Server) findForm(*http.Request, access.User) (page, error) {
	return page{Title: "Find", Nav: "/find", Name: "find", Data: findPage{}}, nil
}

// startFind leads to the page of what is found. Neither path nor query of it shows what was
// looked for, which may be somebody's address: both are kept by browsers and proxies.
func (s *Server) startFind(r *http.Request, _ access.User) (string, error) {
	word := strings.TrimSpace(r.FormValue("word"))
	switch {
	case word == "":
		return "", wrong("Nothing was entered: a request id, an order number or an e-mail address.")
	case len(word) > maxWord:
		return "", wrong("That is longer than any id, order number or address.")
	}
	return "/find/" + url.PathEscape(s.index.Seal(word)), nil
}

const maxWord = 320 // of an address

func (s *Server) found(r *http.Request, _ access.User) (page, error) {
	word, err := s.index.Unseal(r.PathValue("token"))
	if errors.Is(err, index.ErrToken) {
		return page{}, &mistake{http.StatusNotFound, "The link is no longer valid", "It was made by another console, or before its index was given another key. Search again."}
	}
	if err != nil {
		return page{}, err
	}
	found, err := s.index.Find(r.Context(), word)
	if err != nil {
		return page{}, err
	}
	p := findPage{Asked: true, Of: kindOf(word), Mails: found.Mails, Unread: found.Unread}
	for _, f := range found.Found {
		p.Found = append(p.Found, foundRow{f.Row, f.As, f.Mail})
	}
	if err := s.addQueued(r, word, &p); err != nil {
		p.Note = "What waits in the queues could not be searched: " + s.errorPage(err).Title + "."
	}
	return page{Title: "Find", Nav: "/find", Name: "find", Data: p}, nil
}

// addQueued adds requests that wait in a queue and have no event yet.
func (s *Server) addQueued(r *http.Request, word string, p *findPage) error {
	now := time.Now()
	queued, err := s.reader.Find(r.Context(), word, s.secrets, now, now) // since now: the index has what was before
	for _, f := range queued.Found {
		if !slices.ContainsFunc(p.Found, func(have foundRow) bool { return have.RequestID == f.RequestID && have.Operation == f.Operation }) {
			row := foundRow{Row: index.Row{Kind: index.Kind{Operation: f.Operation, State: f.State}, RequestID: f.RequestID, At: f.Time.Time}, As: []index.As{index.As(f.As)}}
			p.Found = append(p.Found, row)
		}
	}
	slices.SortStableFunc(p.Found, func(a, b foundRow) int { return cmp.Or(b.At.Compare(a.At), strings.Compare(a.RequestID, b.RequestID)) })
	return err
}

func kindOf(word string) string {
	if strings.Contains(word, "@") {
		return "that e-mail address"
	}
	return "that id or order number"
}

// OnlyQueued reports whether a request has not been taken yet.
func (f foundRow) OnlyQueued() bool { return f.State == inspect.Queued }
