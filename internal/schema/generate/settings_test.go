package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheSettingsOfTheReferenceAreThoseOfThePrograms(t *testing.T) {
	got, err := os.ReadFile("../../../docs/use/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withSettings(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("run go generate ./docs/schemas (-programs +document):\n%s", diff)
	}
}
