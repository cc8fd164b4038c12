package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"errand/pkg/messages"
)

func TestTheLimitCutsAMessageByTheThousand(t *testing.T) {
	for _, n := range []int{1, 999, 1000, 1001, 2000, 2500} {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf("%d@example.test", i)
		}
		request, err := json.Marshal(mailing{From: "a@example.test", To: all, Subject: "b", Content: "c"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for body := range cut(request) {
			var m mailing
			if err := json.Unmarshal(body, &m); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if len(m.To) > messages.MaxBatch || m.From != "a@example.test" || m.Content != "c" {
				t.Errorf("of %d: %d recipients from %s, content %s", n, len(m.To), m.From, m.Content)
			}
			got = append(got, m.To...)
		}
		if !slices.Equal(got, all) {
			t.Errorf("of %d recipients %d were left, or not in order", n, len(got))
		}
	}
}
