//go:build nodemo

package main

import "errors"

// withDemo stands where the demo would be: images are built so, since its NATS
// server makes up half of the program.
type withDemo struct {
	Demo absent `cmd:"" hidden:"" passthrough:""`
}

type absent struct {
	Given []string `arg:"" optional:""`
}

// Run says where the demo is.
func (absent) Run() error {
	return errors.New("this build has no demo; where the source is, go run ./cmd/errand demo has it")
}
