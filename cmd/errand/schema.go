package main

import (
	"context"
	"encoding/json"
	"strings"

	"errand/docs/schemas"
	"errand/internal/typo"
	"errand/pkg/messages"
)

type schema struct {
	Subject string `arg:"" optional:"" help:"Subject, with or without an id; default: list all."`
}

func (*schema) Help() string {
	return `Prints the JSON Schema (2020-12) of the body that is published on a subject, or lists the subjects.

Examples:

    errand schema mail.send.requested
    errand schema mandate.enroll.failed.enroll-signup-4711 | jq .properties.reason.enum

Schemas of requests are closed: other members are refused. Schemas of events are open: ignore unknown members, as later versions have more.`
}

func (s *schema) Run(_ context.Context, c console) error {
	subjects := schemas.Subjects()
	if s.Subject == "" {
		listSchemas(c, subjects)
		return nil
	}
	parsed := messages.ParseSubject(s.Subject)
	text, err := schemas.Files.ReadFile(parsed.Operation.Subject(parsed.State, "") + ".json")
	if err != nil {
		return invalid("SUBJECT", "must have a schema (errand schema lists them), got %q%s", s.Subject, typo.DidYouMean(s.Subject, subjects))
	}
	_, err = c.out.Write(text)
	return err
}

func listSchemas(c console, subjects []string) {
	var rows [][]cell
	for _, subject := range subjects {
		text, _ := schemas.Files.ReadFile(subject + ".json") // it is in the program
		var about struct{ Description string }
		_ = json.Unmarshal(text, &about)
		first, _, _ := strings.Cut(about.Description, ". ")
		rows = append(rows, []cell{cellOf(subject), cellOf(strings.TrimSuffix(first, ".") + ".")})
	}
	c.table([]string{"", ""}, rows)
}
