package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"errand/docs/schemas"
	"errand/internal/programs"
	"errand/internal/typo"
	"errand/pkg/messages"
)

// schema prints what a body must be.
type schema struct {
	Subject string `arg:"" optional:"" help:"Subject, with an id or without; default: list all."`
}

// Help is shown by --help in addition to the flags.
func (*schema) Help() string {
	return `Prints the JSON Schema (2020-12) of the body that is published on a subject, or lists the subjects.

Examples:

    errand schema
    errand schema mail.send.requested
    errand schema mandate.enroll.failed.enroll-signup-4711 | jq .properties.reason.enum

Schemas of requests are closed: other members are refused. Schemas of events are open: a later version has more members, so ignore those that you do not know.`
}

// Run prints the schema.
func (s *schema) Run(ctx context.Context) error { return s.run(ctx, standard()) }

func (s *schema) run(_ context.Context, c console) error {
	subjects, err := schemas.Subjects()
	if err != nil {
		return err
	}
	if s.Subject == "" {
		return listSchemas(c, subjects)
	}
	parsed := messages.ParseSubject(s.Subject)
	text, err := schemas.Files.ReadFile(parsed.Operation.Subject(parsed.State, "") + ".json")
	if err != nil {
		return &programs.Invalid{Variable: "SUBJECT", Problem: fmt.Sprintf("%q has no schema%s; errand schema lists those that have", s.Subject, typo.DidYouMean(s.Subject, subjects))}
	}
	_, err = c.out.Write(text)
	return err
}

// listSchemas lists the subjects, and what is published there.
func listSchemas(c console, subjects []string) error {
	columns := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, subject := range subjects {
		text, err := schemas.Files.ReadFile(subject + ".json")
		if err != nil {
			return err
		}
		var about struct{ Description string }
		if err := json.Unmarshal(text, &about); err != nil {
			return err
		}
		first, _, _ := strings.Cut(about.Description, ". ")
		fmt.Fprintf(columns, "%s\t%s\n", subject, strings.TrimSuffix(first, ".")+".")
	}
	return columns.Flush()
}
