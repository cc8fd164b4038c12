//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// scale sets the number of each consumer's pods, by hand, and waits for them.
func (w *world) scale(ctx context.Context, n int) error {
	for _, program := range consumers {
		if _, err := w.k(ctx, "scale", "deployment", program, "--replicas", strconv.Itoa(n)); err != nil {
			return err
		}
	}
	return w.settled(ctx, 3*time.Minute)
}

// underLoad runs act while requests are published and every upstream call takes so long. It gives what was published.
func (w *world) underLoad(ctx context.Context, name string, calls time.Duration, act func(context.Context) error) (*batch, error) {
	if err := latency(ctx, calls); err != nil {
		return nil, err
	}
	b, loaded := &batch{name: name}, make(chan error, 1)
	on, stop := context.WithCancel(ctx)
	defer stop()
	go func() { loaded <- w.load(on, b) }() // ends with stop, below
	err := errors.Join(pause(ctx, 3*time.Second), act(ctx), pause(ctx, time.Second))
	stop()
	if err := errors.Join(err, <-loaded); err != nil {
		return nil, err
	}
	w.say("%d enrollments and %d mails were published meanwhile", b.enrolls, b.mails)
	return b, latency(ctx, 0)
}

// unrepeated runs act under load: every request must end well and have been delivered once.
func (w *world) unrepeated(ctx context.Context, name string, calls time.Duration, act func(context.Context) error) error {
	before, err := w.repeated(ctx)
	if err != nil {
		return err
	}
	b, err := w.underLoad(ctx, name, calls, act)
	if err != nil {
		return err
	}
	if err := w.allWell(ctx, b, 3*time.Minute); err != nil {
		return err
	}
	after, err := w.repeated(ctx)
	if err != nil {
		return err
	}
	w.say("consumer_seq is %d ahead of stream_seq; before it was %d", after, before)
	if after != before {
		return fmt.Errorf("%d requests were delivered again", after-before)
	}
	return nil
}

func rolled(ctx context.Context, w *world) error {
	if err := w.scale(ctx, 2); err != nil {
		return err
	}
	return w.unrepeated(ctx, "rollout", time.Second, func(ctx context.Context) error {
		if _, err := w.k(ctx, "rollout", "restart", "deployment/mandate-consumer", "deployment/mail-consumer"); err != nil {
			return err
		}
		return w.settled(ctx, 4*time.Minute)
	})
}

func shrunk(ctx context.Context, w *world) error {
	if err := w.scale(ctx, 4); err != nil {
		return err
	}
	return w.unrepeated(ctx, "shrink", 2*time.Second, func(ctx context.Context) error { return w.scale(ctx, 1) })
}

func killed(ctx context.Context, w *world) error {
	if err := w.scale(ctx, 2); err != nil {
		return err
	}
	b, err := w.underLoad(ctx, "kill", 2*time.Second, func(ctx context.Context) error {
		for _, program := range consumers {
			all, err := w.pods(ctx, program)
			if err != nil {
				return err
			}
			if err := errors.Join(w.kill9(ctx, all[0]), w.restarted(ctx, all[0])); err != nil {
				return err
			}
		}
		return pause(ctx, 5*time.Second)
	})
	if err != nil {
		return err
	}
	// Who goes on with a request of the dead waits until its lease and its call's deadline are over.
	told, err := w.outcomes(ctx, b, 4*time.Minute)
	if err != nil {
		return err
	}
	w.say("outcomes: %v", told)
	// What was in the hands of the dead is uncertain: a mail may have gone, an enrollment is listed but its link lost.
	if told["succeeded"]+told["accepted"]+told["uncertain"] != b.enrolls+b.mails {
		return fmt.Errorf("of %d enrollments and %d mails: %v", b.enrolls, b.mails, told)
	}
	if told["uncertain"] == 0 {
		return errors.New("no call was under way when the program was killed: this proved nothing")
	}
	_, err = oracle(ctx)
	return err
}

// kill9 kills the program of a pod, as the kernel would that is out of memory.
func (w *world) kill9(ctx context.Context, p pod) error {
	_, id, _ := strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, file := range groups {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), id) { // gone meanwhile, or another's
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		w.say("killed %s", p.Metadata.Name)
		return nil
	}
	return fmt.Errorf("no process of container %s", id)
}

// restarted waits until a pod's program was started again.
func (w *world) restarted(ctx context.Context, was pod) error {
	return until(ctx, time.Minute, func(ctx context.Context) error {
		var now pod
		err := w.read(ctx, &now, "get", "pod", was.Metadata.Name)
		if err == nil && now.Status.ContainerStatuses[0].RestartCount == was.Status.ContainerStatuses[0].RestartCount {
			err = errors.New("it was not started again")
		}
		return err
	})
}

func drained(ctx context.Context, w *world) error {
	if err := w.scale(ctx, 2); err != nil {
		return err
	}
	_, err := w.kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=20s",
		"--pod-selector=app.kubernetes.io/name in (mandate-consumer, mail-consumer, log-poller)")
	defer func() { _, _ = w.kubectl(context.WithoutCancel(ctx), "uncordon", node) }() // once more where it went wrong below
	if err == nil || !strings.Contains(err.Error(), "disruption budget") {
		return errors.Join(errors.New("the drain was not stopped by a budget"), err)
	}
	for _, program := range append([]string{"log-poller"}, consumers...) {
		all, err := w.pods(ctx, program)
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range all {
			if p.is("Ready") && p.Metadata.DeletionTimestamp == "" {
				ready++
			}
		}
		if ready != 1 {
			return fmt.Errorf("%s has %d ready pods of 2, want 1", program, ready)
		}
	}
	if _, err := w.kubectl(ctx, "uncordon", node); err != nil {
		return err
	}
	return w.settled(ctx, 2*time.Minute)
}

// pollersKilled kills one poller after the other while deliveries are told. Both sweep the log and take turns at telling.
func pollersKilled(ctx context.Context, w *world) error {
	const many = 200
	b := &batch{name: "pollers"}
	for n := range 4 {
		all, err := w.pods(ctx, "log-poller")
		if err != nil {
			return err
		}
		if len(all) != 2 {
			return fmt.Errorf("%d pollers, want 2", len(all))
		}
		if err := errors.Join(w.mail(ctx, b, many), w.kill9(ctx, all[n%2])); err != nil {
			return err
		}
		began := time.Now()
		if err := w.delivered(ctx, fmt.Sprintf("pollers-m%d", n+1), many, time.Minute); err != nil {
			return err
		}
		w.say("told %.0f s after it was killed", time.Since(began).Seconds())
		if err := w.restarted(ctx, all[n%2]); err != nil {
			return err
		}
	}
	if err := w.settled(ctx, 2*time.Minute); err != nil {
		return err
	}
	for n := range 4 { // none came twice since
		if err := w.delivered(ctx, fmt.Sprintf("pollers-m%d", n+1), many, time.Second); err != nil {
			return err
		}
	}
	return nil
}
