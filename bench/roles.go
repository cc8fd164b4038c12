package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"errand/internal/sandbox/devkit"
)

// server is the role of the NATS servers, one or a cluster of three in one process. It keeps its data in a directory
// and prints an address.
type server struct {
	Dir     string `arg:"" help:"Directory of the data."`
	Servers int    `default:"1" help:"1, or 3 for a cluster."`
}

// usage is what a server has used.
type usage struct {
	CPU  float64 // seconds so far, user and system
	Heap float64 // bytes after a garbage collection, if asked for
}

func (s *server) Run() error {
	n, err := s.start()
	if err != nil {
		return err
	}
	defer n.Close()
	fmt.Println(n.URL)
	return answer(func(question string) (any, error) {
		var stats runtime.MemStats
		if question == "memory" {
			runtime.GC()
			runtime.ReadMemStats(&stats)
		}
		cpu, err := ownCPU()
		return usage{cpu, float64(stats.HeapAlloc)}, err
	})
}

// start starts the servers and returns the last; the others end with the process.
func (s *server) start() (*devkit.NATS, error) {
	if s.Servers == 1 {
		return devkit.Start(s.Dir)
	}
	all, err := devkit.Cluster(s.Dir, s.Servers)
	if err != nil {
		return nil, err
	}
	return all[len(all)-1], nil
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
