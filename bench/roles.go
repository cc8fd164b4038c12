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

func (s *server) Run() error {
	n, err := devkit.Start(s.Dir)
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println(n.URL)
	return answer(func(string) called { return called{} })
}

// called is what an upstream has seen, and what it or a server has used.
type called struct {
	Calls int64
	Ats   int64   // signs @ in all bodies: one for each address
	First int64   // when the first call came; Unix time in nanoseconds
	CPU   float64 // seconds so far, user and system
}

// answer answers every line of standard input with a line of JSON until the input ends. A role ends with its input, not
// by a signal: after Ctrl-C the contestant still needs it to stop properly, and it must not stay behind if bench is
// killed.
func answer(question func(string) called) error {
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		said := question(lines.Text())
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		said.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
		if err := out.Encode(said); err != nil {
			return err
		}
	}
	return nil
}
