package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"time"

	"errand/internal/sandbox/devkit"
)

// server is the role of the NATS server. It keeps its data in a directory and prints an address.
type server struct {
	Dir string `arg:"" help:"Directory of the data."`
}

// usage is what a server has used.
type usage struct {
	CPU float64 // seconds so far, user and system
}

func (s *server) Run() error {
	n, err := devkit.Start(s.Dir)
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println(n.URL)
	return answer(func(string) (any, error) {
		cpu, err := ownCPU()
		return usage{cpu}, err
	})
}

// answer answers every line of standard input with a line of JSON until the input ends. A role ends with its input, not
// by a signal: after Ctrl-C the contestant still needs it to stop properly, and it must not stay behind if bench is
// killed.
func answer(question func(string) (any, error)) error {
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		said, err := question(lines.Text())
		if err != nil {
			return err
		}
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return nil
}

// ownCPU is the CPU time of this process in seconds, user and system.
func ownCPU() (float64, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds(), err
}
