//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	cgroup   = "/errand-k8s-e2e"          // of the pods, in every hierarchy of the machine
	lockFile = "/run/errand-k8s-e2e.lock" // held by the only run on a machine
)

// runInNamespaces runs this program's hidden command with args in its own namespaces: processes, mounts, network. When
// that process ends for any reason, the kernel ends all others of its namespace, and removes mounts and interfaces. Only
// cgroups and the run's directory are left, which are removed here.
func runInNamespaces(ctx context.Context, run string, args ...string) error {
	runtime.LockOSThread() // see newProcesses
	must(cleanUp(run))
	for _, dir := range hierarchies() {
		must(os.Mkdir(filepath.Join(dir, cgroup), 0o750))
	}
	self := get(os.Executable())
	cmd := exec.CommandContext(ctx, self, append([]string{"inside", run}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		// It has printed why. The logs stay for analysis; the next run removes them.
		fmt.Fprintln(os.Stderr, "logs of the programs:", filepath.Join(run, "logs"))
		return errors.Join(errors.New("it failed, see above"), removeCgroups())
	}
	return errors.Join(err, cleanUp(run))
}

// acquireLock makes this the only run on the machine while the file is open.
func acquireLock() *os.File {
	lock := get(os.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600))
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		must(errors.New("another test is running on this machine"))
	}
	return lock
}

// cleanUp removes what a run leaves.
func cleanUp(run string) error { return errors.Join(removeCgroups(), os.RemoveAll(run)) }

// hierarchies returns the directories of control groups: one of version 2, or several of version 1.
func hierarchies() (dirs []string) {
	for line := range strings.Lines(string(get(os.ReadFile("/proc/self/mounts")))) {
		if f := strings.Fields(line); f[2] == "cgroup" || f[2] == "cgroup2" {
			dirs = append(dirs, f[1])
		}
	}
	return dirs
}

func removeCgroups() (err error) {
	for _, dir := range hierarchies() {
		var groups []string
		_ = filepath.WalkDir(filepath.Join(dir, cgroup), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		slices.Reverse(groups) // the innermost first
		for _, group := range groups {
			gone := until(context.Background(), 5*time.Second, func(context.Context) error { // until its processes have ended
				err := syscall.Rmdir(group)
				if errors.Is(err, syscall.ENOENT) {
					return nil
				}
				return err
			})
			if gone != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", group, gone))
			}
		}
	}
	return err
}

// prepareMounts replaces mounts in this namespace: what programs write to well-known places is gone with it, names are
// resolved by the cluster, and kubelet writes the kernel's parameters to ordinary files, since they belong to the machine.
func prepareMounts(run string) {
	mount := func(source, target, kind string, flags uintptr, data string) {
		if err := syscall.Mount(source, target, kind, flags, data); err != nil {
			must(fmt.Errorf("mount %s: %w", target, err))
		}
	}
	mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	mount("proc", "/proc", "proc", 0, "")
	mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
	mount("tmpfs", "/var/log", "tmpfs", 0, "mode=755")
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		instead := filepath.Join(run, "sysctl", name)
		must(os.MkdirAll(filepath.Dir(instead), 0o700))
		must(os.WriteFile(instead, []byte("0"), 0o600))
		mount(instead, filepath.Join("/proc/sys", name), "", syscall.MS_BIND, "")
	}
	mount(filepath.Join(run, "resolv.conf"), get(filepath.EvalSymlinks("/etc/resolv.conf")), "", syscall.MS_BIND, "")
}
