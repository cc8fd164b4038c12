package admission

import (
	"context"
	"errors"
	"testing"
)

func TestSlotsAreTakenUntilTheContextEnds(t *testing.T) {
	s := make(Slots, 1)
	cause := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	if err := s.Take(ctx); err != nil {
		t.Fatal(err)
	}
	end(cause)
	if err := s.Take(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	s.Free()
	if err := s.Take(ctx); err != nil { // there is one
		t.Errorf("got %v", err)
	}
}
