//go:build nodemo

package main

import "errors"

// withDemo takes the place of the demo. The images are built this way because the demo's
// NATS server makes up half of the program.
type withDemo struct {
	Demo absent `cmd:"" hidden:"" passthrough:""`
}

type absent struct {
	Given []string `arg:"" optional:""`
}

// Run says where the demo is.
func (absent) Run() error {
	return errors.New("this build has no demo; with the source, use go run ./cmd/errand demo")
}
