package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"errand/pkg/messages"
)

func TestASchemaIsPrintedAsItIsCommitted(t *testing.T) {
	t.Parallel()
	for args, file := range map[string]string{
		"mail.send.requested":                      "mail.send.requested.json",
		"mandate.enroll.failed.enroll-signup-4711": "mandate.enroll.failed.json",
		"mail.batch.refused.news.12":               "mail.batch.refused.json",
		"mail.log.watermark":                       "mail.log.watermark.json",
	} {
		want, err := os.ReadFile("../../docs/schemas/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if got := errand(t, "", "schema", args); got != string(want) || !json.Valid(want) {
			t.Errorf("errand schema %s prints %.100s…", args, got)
		}
	}
}

func TestSubjectsWithASchemaAreListedWithWhatTheyAre(t *testing.T) {
	t.Parallel()
	list := errand(t, "", "schema")
	lines := strings.Split(strings.TrimSpace(list), "\n")
	for _, want := range []string{messages.Send.Requested(), messages.Enroll.Subject(messages.Uncertain, ""),
		messages.Log.Subject(messages.Marked, "")} {
		if !strings.Contains(list, want+" ") {
			t.Errorf("%s is not listed:\n%s", want, list)
		}
	}
	for _, line := range lines {
		if words := strings.Fields(line); len(words) < 4 || !strings.HasSuffix(line, ".") || len(line) > 150 {
			t.Errorf("a line of the list is %q", line)
		}
	}
}

func TestAMistypedSubjectIsAnsweredWithTheOneThatWasMeant(t *testing.T) {
	t.Parallel()
	misconfigured(t, `got "mail.send.requsted": did you mean mail.send.requested?`, "schema", "mail.send.requsted")
	misconfigured(t, "did you mean mandate.enroll.failed?", "schema", "mandate.enrol.failed")
	misconfigured(t, `must have a schema (errand schema lists them), got "../go.mod"`, "schema", "../go.mod")
}
