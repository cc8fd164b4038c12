package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"errand/internal/bus"
	"errand/internal/oncall/access"
	"errand/internal/oncall/inspect"
	"errand/internal/style"
	"errand/pkg/messages"
)

type queuesPage struct {
	known
	Missing []string // programs that do not answer
	Open    []inspect.Open
	MayAct  bool
}

// StateOf is whether a queue gives out requests, and why not.
func (p queuesPage) StateOf(q inspect.Queue) badge {
	programs, name := p.Status.Programs, bus.ProgramOf(q.Operation)
	_, held := bus.HoldOf(programs, q.Operation)
	switch {
	case q.PausedUntil != nil:
		return badge{style.Doubt, "paused"}
	case held.Why != "":
		return badge{style.Doubt, "held"}
	case !p.Status.Answers(name):
		return badge{style.Bad, "no program"}
	case !slices.ContainsFunc(programs, func(s bus.ProgramStatus) bool { return s.Program == name && len(s.Faults) == 0 }):
		return badge{style.Bad, "not ready"}
	}
	return badge{style.Good, "open"}
}

const longestWaits = 25

func (s *Server) queues(_ *http.Request, user access.User) (page, error) {
	k := s.watch.get()
	p := queuesPage{known: k, MayAct: user.May(access.Act), Open: k.Stuck.Requests[:min(longestWaits, len(k.Stuck.Requests))]}
	if !k.Status.At.IsZero() {
		p.Missing = bus.MissingPrograms(k.Status.Programs)
	}
	return page{Title: "Queues and programs", Nav: "/queues", Name: "queues", Data: p}, nil
}

func (s *Server) pauseForm(r *http.Request, _ access.User) (page, error) {
	of, err := s.queueNamed(r)
	if err != nil {
		return page{}, err
	}
	queue, err := s.reader.Queue(r.Context(), of, time.Now())
	return page{Title: "Pause " + of.String(), Nav: "/queues", Name: "pause", Data: queue}, err
}

// queueNamed is the queue of a path, an operation or its queue with a lane.
func (s *Server) queueNamed(r *http.Request) (bus.Queue, error) {
	name, lane, _ := strings.Cut(r.PathValue("queue"), ".lane.")
	op, err := operationNamed(name)
	if err != nil {
		return bus.Queue{}, err
	}
	all, err := s.reader.Lanes(r.Context(), op)
	for _, q := range all {
		if q.Lane() == lane {
			return q, err
		}
	}
	return bus.Queue{}, cmp.Or(err, errNoQueue)
}

var errNoQueue = notFound("There is no queue with that name.")

func operationNamed(name string) (messages.Operation, error) {
	if op := messages.Operation(name); slices.Contains(inspect.Operations, op) {
		return op, nil
	}
	return "", errNoQueue
}
