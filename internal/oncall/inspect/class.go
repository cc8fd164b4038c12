package inspect

import (
	"encoding/json"
	"fmt"
	"slices"

	"errand/internal/history"
	"errand/internal/style"
	"errand/pkg/messages"
)

// Class is what running a request again may do, as far as anybody knows.
type Class string

// The classes.
const (
	Safe       Class = "safe"
	Reopened   Class = "reopened"
	Twice      Class = "may_be_done_twice"
	WasDone    Class = "was_done"
	FailsAgain Class = "fails_again"
	Cancelled  Class = "cancelled"
	CannotRun  Class = "cannot_run"
	Underway   Class = "open"
	Superseded Class = "superseded"
)

// Run is what it takes to run a request of a class again.
type Run string

// What it takes.
const (
	RunsAsked    Run = "ask"    // nothing more than to ask for it
	RunsAccepted Run = "accept" // somebody accepts by name that it may be done twice
	RunsForced   Run = "force"  // somebody forces it by name
	RunsNever    Run = "never"
)

// ClassInfo is how a class is shown and what a person may do.
type ClassInfo struct {
	Class Class
	Look  style.Look
	Words string
	Means string
	Run   Run
}

// Classes are all classes, in the order in which they are shown.
var Classes = []ClassInfo{
	{Safe, style.Good, "safe", "what is called again had no effect", RunsAsked},
	{Reopened, style.Good, "already reopened", "it was reopened and not published: that was interrupted", RunsAsked},
	{Twice, style.Doubt, "may be done twice", "a call may have had an effect, or its history is gone", RunsAccepted},
	{WasDone, "", "was done", "it turned out to be done, or its order number is listed", RunsForced},
	{FailsAgain, style.Bad, "fails again", "its contents are not valid: its publisher corrects them, under its id", RunsForced},
	{Cancelled, "", "was cancelled", "a person withdrew it", RunsForced},
	{CannotRun, "", "cannot run", "its id belongs to another request, or its data was erased", RunsNever},
	{Underway, style.Wait, "not over", "it waits, or a call is under way", RunsNever},
	{Superseded, "", "superseded", "it ended again since, or was corrected", RunsNever},
}

// Info is how the class is shown; of an unknown class, its name.
func (c Class) Info() ClassInfo {
	i := slices.IndexFunc(Classes, func(info ClassInfo) bool { return info.Class == c })
	if i < 0 {
		return ClassInfo{Class: c, Words: string(c), Run: RunsNever}
	}
	return Classes[i]
}

// ClassOf classifies a request by its last event and says why; a state of "" means that its events have expired. A
// plan knows more: it also reads the dead letter, the batches and what was there before (see act.Requests.Plan).
func ClassOf(op messages.Operation, state messages.State, f history.Facts) (Class, string) {
	switch {
	case state == "":
		return Twice, "its events have expired: nobody knows whether it was done"
	case state == messages.Erased:
		return CannotRun, "its data was erased"
	case !state.Final(op):
		return Underway, fmt.Sprintf("it is %s: what waits runs by itself", state)
	case state == messages.Resolved && f.Outcome != messages.Failed && f.Outcome != messages.Partial:
		verb := "has"
		if f.Outcome == messages.Accepted {
			verb = "was"
		}
		return WasDone, fmt.Sprintf("it %s %s, as was found out", verb, f.Outcome)
	case f.Reason == messages.ReasonCancelled:
		return Cancelled, "a person withdrew it"
	case f.Reason == messages.ReasonConflict:
		return CannotRun, fmt.Sprintf("it conflicts with %s: publish it under another id", f.ConflictsWith)
	case f.ConflictsWith != "":
		return CannotRun, fmt.Sprintf("it is a copy of %s: redrive that", f.ConflictsWith)
	case !slices.Contains([]messages.State{messages.Failed, messages.Uncertain, messages.Partial, messages.Resolved}, state):
		return Superseded, fmt.Sprintf("it went on since: it is %s", state)
	case op == messages.Enroll && (hasRecords(f.Evidence) || f.Reason == messages.ReasonLinkLost):
		return WasDone, "its order number is listed: the payer is enrolled, or is about to be"
	case op == messages.Enroll && state == messages.Resolved:
		return Safe, "it was found out that nothing came of it; its order number is looked up before the call"
	case op == messages.Enroll && (state == messages.Uncertain || f.AfterUnknown):
		return Twice, "a call of unknown fate is behind it; its order number is looked up before the call"
	case state == messages.Uncertain || state == messages.Failed && f.AfterUnknown:
		return Twice, "a call of unknown fate is behind it"
	case f.Reason == messages.ReasonInvalidRequest && f.Batches == 0:
		return FailsAgain, "it is not valid: as it is, it fails again"
	}
	return Safe, "no call had an effect"
}

func hasRecords(evidence json.RawMessage) bool {
	var records []json.RawMessage
	return json.Unmarshal(evidence, &records) == nil && len(records) > 0
}
