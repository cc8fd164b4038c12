package attempt

import "runtime/debug"

// PanicError is a panic that was caught, so that one request cannot end the program.
type PanicError struct{ Stack []byte }

// Panicked makes an error of a recovered panic. Its value is left out: it may hold a payer's data.
func Panicked(any) error { return &PanicError{Stack: debug.Stack()} }

func (e *PanicError) Error() string { return "a panic" }
