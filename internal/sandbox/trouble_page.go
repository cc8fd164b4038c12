package sandbox

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// trouble is a fault that the page has a button for.
type trouble struct {
	Name, Text string
	Fault      Fault
}

// troubles are the common ones, by service.
var troubles = []struct {
	Service string
	Buttons []trouble
}{
	{"Enrollments", []trouble{
		{"enroll-cut", "Enroll, then cut the connection", Fault{Operation: "enroll", Kind: AcceptCut}},
		{"enroll-hang", "Enroll, answer after a minute", Fault{Operation: "enroll", Kind: DelayAnswer, Delay: Duration(time.Minute)}},
		{"enroll-garbage", "Enroll, answer unreadably", Fault{Operation: "enroll", Kind: Garbage}},
		{"enroll-busy", "Answer 503, enroll nobody", Fault{Operation: "enroll", Kind: Status, Status: http.StatusServiceUnavailable}},
		{"enroll-refuse", "Answer 422, enroll nobody", Fault{Operation: "enroll", Kind: Status, Status: http.StatusUnprocessableEntity}},
		{"enroll-key", "Answer 401, as to a wrong token", Fault{Operation: "enroll", Kind: Status, Status: http.StatusUnauthorized}},
	}},
	{"Mail", []trouble{
		{"send-cut", "Take the message, then cut the connection", Fault{Operation: "send", Kind: AcceptCut}},
		{"send-hang", "Take it, answer after a minute", Fault{Operation: "send", Kind: DelayAnswer, Delay: Duration(time.Minute)}},
		{"send-short", "Take half of the recipients", Fault{Operation: "send", Kind: Short}},
		{"send-busy", "Answer 503, take nothing", Fault{Operation: "send", Kind: Status, Status: http.StatusServiceUnavailable}},
		{"send-quota", "Answer 402, as when the quota is used up", Fault{Operation: "send", Kind: Status, Status: http.StatusPaymentRequired}},
		{"send-key", "Answer 401, as to a wrong key", Fault{Operation: "send", Kind: Status, Status: http.StatusUnauthorized}},
	}},
	{"Everything", []trouble{
		{"all-slow", "Answer two seconds late", Fault{Operation: "*", Kind: Delay, Delay: Duration(2 * time.Second)}},
		{"all-busy", "Answer 503 to every call", Fault{Operation: "*", Kind: Status, Status: http.StatusServiceUnavailable}},
		{"logs-busy", "Answer 503 to reads of the sending log", Fault{Operation: "logs", Kind: Status, Status: http.StatusServiceUnavailable}},
	}},
}

// troubleOf is the fault behind a button.
func troubleOf(name string) (Fault, bool) {
	for _, group := range troubles {
		if i := slices.IndexFunc(group.Buttons, func(t trouble) bool { return t.Name == name }); i >= 0 {
			return group.Buttons[i].Fault, true
		}
	}
	return Fault{}, false
}

// faultView is a current fault as the page shows it.
type faultView struct {
	ID                    int
	Operation, What, Left string
	Fired                 int
}

func (s *Sandbox) troublePage(w http.ResponseWriter) {
	var current []faultView
	for _, f := range s.Faults() {
		v := faultView{ID: f.ID, Operation: f.Operation, What: faultWords[f.Kind], Fired: f.Fired, Left: "until it is cleared"}
		if f.Kind == Status || f.Kind == AcceptStatus {
			v.What += " " + http.StatusText(f.answer(opEnroll).status)
		}
		if f.Times > 0 {
			v.Left = strconv.Itoa(max(0, f.Times-f.Fired)) + " of " + strconv.Itoa(f.Times) + " calls"
		}
		current = append(current, v)
	}
	show(w, "trouble", map[string]any{"Current": current, "Groups": troubles, "Settings": s.Settings()})
}

// postTrouble handles the buttons. They control the sandbox, so only its pages may use them.
func (s *Sandbox) postTrouble(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	if err := s.act(r.PostFormValue("do"), r.PostFormValue("what"), r.PostFormValue("times")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	http.Redirect(w, r, "/trouble", http.StatusSeeOther)
}

// act does what a button says.
func (s *Sandbox) act(do, what, times string) error {
	switch do {
	case "add":
		fault, known := troubleOf(what)
		n, err := strconv.Atoi(times)
		if !known || err != nil {
			return errors.New("there is no such button")
		}
		fault.Times = n
		_, err = s.AddFault(fault)
		return err
	case "clear":
		id, err := strconv.Atoi(what)
		s.ClearFault(id)
		return err
	case "clear-all":
		s.ClearFaults()
	case "cycle":
		_, _, err := s.Cycle(strings.Fields(what)...)
		return err
	case "suspend":
		return s.Set(func(v *Settings) { v.Suspended = !v.Suspended })
	case "disable":
		return s.Set(func(v *Settings) { v.ChannelDisabled = !v.ChannelDisabled })
	case "reset":
		s.Reset()
	default:
		return errors.New("there is no such button")
	}
	return nil
}
