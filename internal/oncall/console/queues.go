package console

import (
	"net/http"
	"slices"
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
	op, err := operationNamed(r.PathValue("queue"))
	if err != nil {
		return page{}, err
	}
	queue, err := s.reader.Queue(r.Context(), op, time.Now())
	return page{Title: "Pause " + string(op), Nav: "/queues", Name: "pause", Data: queue}, err
}

func operationNamed(name string) (messages.Operation, error) {
	if op := messages.Operation(name); slices.Contains(inspect.Operations, op) {
		return op, nil
	}
	return "", notFound("There is no queue with that name.")
}
