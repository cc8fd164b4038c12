package console

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"errand/internal/history"
	"errand/internal/mandates"
	"errand/internal/oncall/access"
	"errand/internal/oncall/act"
	"errand/internal/oncall/index"
	"errand/internal/oncall/inspect"
	"errand/internal/retry"
	"errand/internal/style"
	"errand/pkg/messages"
)

type requestPage struct {
	ID        string
	Stories   []storyView
	MayReveal bool
	Revealed  bool
	Rows      []index.Row // what the index knows, if NATS does not answer
	Problem   string      // why the streams could not be read
}

type storyView struct {
	inspect.Story
	Events                []eventView
	Deliveries            []eventView
	Mandate               []eventView
	Letters               []eventView
	MayRedrive, MayCancel bool
}

type eventView struct {
	history.Facts // its texts without personal data
	State         messages.State
	What          string // which batch, or the kind of a mandate event
	At            messages.Time
	Body          string
	Sequence      uint64
}

func (s *Server) request(r *http.Request, user access.User) (page, error) {
	return s.requestPage(r.Context(), r.PathValue("id"), user, false)
}

// requestPage reads the streams, or the index while NATS does not answer: it knows less.
func (s *Server) requestPage(ctx context.Context, id string, user access.User, reveal bool) (page, error) {
	p := requestPage{ID: id, MayReveal: user.May(access.Reveal) && !reveal, Revealed: reveal}
	if !inspect.IsID(id) {
		return page{}, notFound("That is not a request id: an id has 1 to 64 letters, digits, _ and -.")
	}
	stories, err := s.reader.Stories(ctx, id, time.Now())
	if err != nil {
		rows, unknown := s.index.Request(ctx, id)
		if unknown != nil || len(rows) == 0 {
			return page{}, err
		}
		p.Rows, p.Problem = rows, s.errorPage(err).Title+"."
	}
	for _, story := range stories {
		p.Stories = append(p.Stories, viewOf(story, user, reveal))
	}
	out := page{Title: "Request " + id, Nav: "/requests", Name: "request", Data: p}
	if len(stories) == 1 && stories[0].Unknown() {
		out.Status = http.StatusNotFound
	}
	return out, nil
}

func viewOf(s inspect.Story, user access.User, reveal bool) storyView {
	v := storyView{Story: s}
	bodies := [][]byte{s.Request} // that may hold the request, or what came of it
	for _, e := range s.Events {
		bodies = append(bodies, e.Message.Data)
	}
	for _, d := range s.Dead {
		bodies = append(bodies, d.Event.Message.Data)
	}
	id := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(s.RequestID) + `($|[^\w-])`)
	m := masked{reveal, personalIn(s.Operation, bodies...), id, s.RequestID}
	views := func(events []inspect.Event, view func(inspect.Event, masked) eventView) (all []eventView) {
		for _, e := range events {
			all = append(all, view(e, m))
		}
		return all
	}
	v.Events, v.Deliveries, v.Mandate = views(s.Events, eventViewOf), views(s.Delivered, eventViewOf), views(s.Mandate, mandateView)
	ours := false
	for _, e := range v.Events { // the last of them counts
		ours = e.Reason == messages.ReasonCancelled || e.State == messages.Reopened && s.Waits == nil
	}
	v.Says = m.text(s.Says, ours)
	for _, d := range s.Dead {
		letter := eventViewOf(d.Event, m)
		letter.Reason, letter.Message, letter.At = d.Reason, m.text(d.Message, d.Reason == messages.ReasonCancelled), d.Time
		v.Letters = append(v.Letters, letter)
	}
	if !user.May(access.Act) || s.State == inspect.NeverSeen {
		return v
	}
	v.MayRedrive = len(s.Dead) > 0 && s.State.Final(s.Operation)
	v.MayCancel = s.State == inspect.Queued || s.State == messages.Deferred
	return v
}

// masked is how the texts of a request are shown: its id stays.
type masked struct {
	reveal bool
	names  personal
	isID   *regexp.Regexp // as a whole word
	id     string
}

// text is without personal data; ours: of errand's own or of a person who acts.
func (m masked) text(text string, ours bool) string {
	const itsID = "\x00"
	hide := m.names.hide
	if ours {
		hide = m.names.ours
	}
	if !m.reveal {
		text = strings.ReplaceAll(hide(m.isID.ReplaceAllString(text, "${1}"+itsID+"${2}")), itsID, m.id)
	}
	return text
}

func eventViewOf(e inspect.Event, m masked) eventView {
	facts, _ := history.ReadFacts(e.Message.Data) // fields that cannot be read stay empty
	subject := messages.ParseSubject(e.Subject)
	facts.Message, facts.Why = m.text(facts.Message, facts.Reason == messages.ReasonCancelled), m.text(facts.Why, true)
	v := eventView{Facts: facts, State: subject.State, At: e.Time, Body: pretty(e.Message.Data, m.reveal, m.names), Sequence: e.Sequence}
	if subject.Batch > 0 {
		v.What = fmt.Sprint("batch ", subject.Batch)
	}
	return v
}

func mandateView(e inspect.Event, m masked) eventView {
	v := eventViewOf(e, m)
	op := messages.ParseSubject(e.Subject).Operation
	v.What = strings.ToLower(plain(op))
	if op == messages.Callback {
		var b messages.CallbackBody
		_ = messages.DecodeEvent(e.Message.Data, &b) // fields that cannot be read stay empty
		v.Message = fmt.Sprintf("%s, %s, checksum: %s. A callback is only a hint: anyone who knows its address can send one.",
			b.Method, style.Bytes(b.Bytes), b.Checksum)
		return v
	}
	var b messages.TransactionBody
	_ = messages.DecodeEvent(e.Message.Data, &b)
	if b.MandateStatus != "" {
		v.Message = "The mandate is " + strings.ReplaceAll(b.MandateStatus, "_", " ") + "."
	}
	made := mandates.ReadRecord(b.Transaction).CreatedAt
	if _, err := time.Parse(time.DateTime, made); op == messages.Deduction && err == nil { // deductions differ by it
		v.Message = strings.TrimSpace("Made at " + made + ". " + v.Message)
	}
	return v
}

// revealed shows a request with its personal data, once, and records it in the audit.
func (s *Server) revealed(w http.ResponseWriter, r *http.Request, user access.User) {
	id, why := r.PathValue("id"), r.FormValue("why")
	ctx, cancel := context.WithTimeout(r.Context(), retry.PageAct)
	defer cancel()
	p, err := s.revealForm(r, user) // the audit keeps no id that is none
	var person act.Person
	if err == nil {
		person, err = s.person(user)
	}
	if err == nil {
		reveal := act.Act{Verb: act.Reveal, Target: id, Why: why, Plan: "show its data"}
		_, err = person.Do(ctx, reveal, func(ctx context.Context) (string, error) {
			var err error
			p, err = s.requestPage(ctx, id, user, true)
			return "shown", err
		})
	}
	if err != nil {
		p = s.errorPage(refusedAct(err))
	}
	s.show(w, r, user, p, "")
}

func (s *Server) revealForm(r *http.Request, _ access.User) (page, error) {
	id := r.PathValue("id")
	if !inspect.IsID(id) {
		return page{}, notFound("There is nothing to show.")
	}
	return page{Title: "Show personal data", Nav: "/requests", Name: "reveal", Data: struct{ ID string }{id}}, nil
}
