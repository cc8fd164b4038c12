package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
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
	n, err := devkit.Start(s.Dir)
	if s.Servers > 1 {
		n, err = startCluster(s.Dir, s.Servers)
	}
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

// startCluster starts servers that form a cluster, and returns the last; the others end with the process.
func startCluster(dir string, servers int) (n *devkit.NATS, err error) {
	addresses, err := freeAddresses(servers)
	if err != nil {
		return nil, err
	}
	routes := `"nats://` + strings.Join(addresses, `", "nats://`) + `"`
	for i, address := range addresses {
		config := fmt.Sprintf("server_name: n%d\ncluster { name: bench, listen: %q, routes: [%s] }", i, address, routes)
		if n, err = devkit.Configured(fmt.Sprintf("%s/%d", dir, i), config); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// freeAddresses returns addresses on which nobody listens.
func freeAddresses(n int) (addresses []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // not before the end, so that the ports differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
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
