// Command pause holds the namespaces of a pod, reaps its orphans and ends on SIGTERM.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() { wait() }

func wait() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
