package main

import (
	"fmt"
	"io"
	"os"

	"errand/internal/sandbox/devkit"
)

// server is the role of the NATS server. It keeps its data in a directory and prints an address.
type server struct {
	Dir string `arg:"" help:"Directory of the data."`
}

func (s *server) Run() error {
	n, err := devkit.Start(s.Dir)
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println(n.URL)
	return inputEnds()
}

// inputEnds waits for the end of standard input. A role ends with it, not by a signal: after Ctrl-C the contestant still needs
// it to stop properly, and it must not stay behind if bench is killed.
func inputEnds() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
