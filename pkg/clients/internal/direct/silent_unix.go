//go:build unix

package direct

import "syscall"

const canAsk = true

// silent reports whether the connection is open and has nothing to be read.
func (l *line) silent() bool {
	var found error
	err := l.raw.Read(func(fd uintptr) bool {
		_, found = syscall.Read(int(fd), l.one[:])
		return true
	})
	return err == nil && found == syscall.EAGAIN
}
