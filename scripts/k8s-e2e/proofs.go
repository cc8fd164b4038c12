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

// assertions are what is proven, in an order in which each finds what it needs: first on the overlay whose numbers of
// pods are set by hand, then on the one that KEDA scales.
var assertions = []assertion{
	{name: "deploy", says: "one apply brings everything up under the restricted policy; another changes nothing", run: deployed, always: true},
	{name: "work", says: "an enrollment, and a message to 2,500, end well; each delivery is told", run: worked},
	{name: "rollout", says: "a rolling restart under load repeats nothing", run: rolled},
	{name: "scale-down", says: "going from 4 pods to 1 under load cuts no call", run: shrunk},
	{name: "kill", says: "a program killed with SIGKILL under load loses nothing and does nothing twice", run: killed},
	{name: "drain", says: "draining the node stops at the disruption budget", run: drained},
	{name: "pollers", says: "of two pollers one goes on when the other is killed; each delivery is told once", run: pollersKilled},
	{name: "token", says: "a wrong token: not ready, says so; a right one heals it without a restart", run: wrongToken},
	{name: "password", says: "a wrong NATS password: not ready, says so; a right one heals it without a restart", run: wrongPassword},
	{name: "scale", says: "KEDA scales with a backlog and back to 1", run: scaled},
	{name: "held", says: "upstream down: not ready, says why, no pod is added; it comes back by itself", run: held},
	{name: "deferred", says: "requests that the upstream puts off add no pod", run: deferred},
}

const notProven = `that NetworkPolicies are enforced (this node's network has none), volumes and
more than one NATS server, more than one node, ingress of alerts, KEDA's admission webhook and certificates.`

// deployed applies the sandbox overlay until everything is ready.
func deployed(ctx context.Context, w *world) error {
	if _, err := w.apply(ctx, "sandbox"); err != nil {
		return err
	}
	if _, err := w.k(ctx, "wait", "--for=condition=complete", "job/errand-provision", "--timeout=180s"); err != nil {
		return err
	}
	if err := w.settled(ctx, 3*time.Minute); err != nil {
		return err
	}
	w.say("everything is ready, streams are provisioned")
	// A control: the policy is enforced.
	_, err := w.k(ctx, "run", "careless", "--image=localhost/pause:1", "--dry-run=server")
	if err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		return fmt.Errorf("a pod that may be root was not refused: %w", err)
	}
	// What kubectl calls "configured" need not be a change; a generation counts them, and new pods have new ids.
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.uid}{"\n"}{end}`
	var seen [2]string
	for n := range seen {
		if seen[n], err = w.k(ctx, "get", "deployments,jobs,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,pods", "-o", versions); err != nil {
			return err
		}
		if _, err := w.apply(ctx, "sandbox"); err != nil {
			return fmt.Errorf("a second time: %w", err)
		}
	}
	if seen[0] != seen[1] {
		return fmt.Errorf("applying it again changed:\n%s\nto:\n%s", seen[0], seen[1])
	}
	return w.connect(ctx)
}

// worked has the two kinds of work done.
func worked(ctx context.Context, w *world) error {
	const many = 2500
	b := &batch{name: "work"}
	if err := errors.Join(w.enroll(ctx, b), w.mail(ctx, b, many)); err != nil {
		return err
	}
	if err := w.allWell(ctx, b, time.Minute); err != nil {
		return err
	}
	did, err := oracle(ctx)
	if err != nil {
		return err
	}
	if did.Mail.Recipients != many || did.Mail.Largest > 1000 {
		return fmt.Errorf("the sandbox mailed %d people, at most %d at once; want %d and 1000", did.Mail.Recipients, did.Mail.Largest, many)
	}
	return w.delivered(ctx, "work-m1", many, time.Minute)
}

// delivered waits until so many deliveries of a message are told.
func (w *world) delivered(ctx context.Context, id string, want uint64, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		subject := "mail.delivery.delivered." + id
		events, err := w.events(ctx, "MAIL_DELIVERIES", subject)
		switch got := events[subject]; {
		case err != nil:
			return err
		case got > want:
			return final{fmt.Errorf("%d deliveries of %s were told, want %d", got, id, want)}
		case got < want:
			return fmt.Errorf("%d deliveries of %s were told, want %d", got, id, want)
		}
		return nil
	})
}

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
	b, loading, loaded := &batch{name: name}, make(chan struct{}), make(chan error, 1)
	on, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with stop, below
		close(loading)
		loaded <- w.load(on, b, 10, 100_000)
	}()
	<-loading
	err := errors.Join(pause(ctx, 3*time.Second), act(ctx), pause(ctx, time.Second))
	stop()
	if err := errors.Join(err, <-loaded); err != nil {
		return nil, err
	}
	w.say("%d enrollments and %d mails were published meanwhile", b.enrolls, b.mails)
	return b, errors.Join(err, latency(ctx, 0))
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
	if err == nil && after != before {
		err = fmt.Errorf("%d requests were delivered again", after-before)
	}
	return err
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
	return w.unrepeated(ctx, "scale-down", 2*time.Second, func(ctx context.Context) error { return w.scale(ctx, 1) })
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
		return fmt.Errorf("the drain was not stopped by a budget: %w", err)
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
		if err != nil || len(all) != 2 {
			return fmt.Errorf("%d pollers, want 2 (%w)", len(all), err)
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

// unready waits until a pod is not ready and says all of the words at /readyz and in its log.
func (w *world) unready(ctx context.Context, program string, words ...string) (p pod, err error) {
	err = until(ctx, 90*time.Second, func(ctx context.Context) error {
		if p, err = w.one(ctx, program); err != nil {
			return err
		}
		status, body, err := w.page(ctx, p.Metadata.Name, "/readyz")
		if err != nil {
			return err
		}
		for _, word := range words {
			if status != 503 || !strings.Contains(body, word) {
				return fmt.Errorf("/readyz is %d %q, want 503 and %q", status, body, word)
			}
		}
		if p.is("Ready") {
			return errors.New("Kubernetes takes it for ready")
		}
		log, err := w.k(ctx, "logs", p.Metadata.Name)
		if err != nil {
			return err
		}
		for _, word := range words {
			if !strings.Contains(log, word) {
				return fmt.Errorf("the log does not say %q", word)
			}
		}
		w.say("/readyz: %s", body)
		return nil
	})
	return p, err
}

// healed waits until the very same process is ready.
func (w *world) healed(ctx context.Context, program string, was pod, patience time.Duration) error {
	return until(ctx, patience, func(ctx context.Context) error {
		now, err := w.one(ctx, program)
		switch {
		case err != nil:
			return err
		case now.Metadata.UID != was.Metadata.UID || now.Status.ContainerStatuses[0].RestartCount != was.Status.ContainerStatuses[0].RestartCount:
			return final{errors.New("it was started again")}
		case !now.is("Ready"):
			_, body, err := w.page(ctx, now.Metadata.Name, "/readyz")
			return fmt.Errorf("not ready: %s (%w)", body, err)
		}
		return nil
	})
}

// misled gives the mandate consumer a wrong value in its Secret from its start on, waits until it says the words, and
// gives it the right one again.
func (w *world) misled(ctx context.Context, key string, work func(context.Context) error, words ...string) error {
	if err := w.scale(ctx, 1); err != nil {
		return err
	}
	right, err := w.k(ctx, "get", "secret", "mandate-consumer", "-o", "jsonpath={.data."+key+"}")
	if err != nil {
		return err
	}
	set := func(ctx context.Context, value string) error {
		_, err := w.k(ctx, "patch", "secret", "mandate-consumer", "-p", fmt.Sprintf(`{"data":{%q:%q}}`, key, value))
		return err
	}
	defer func() { _ = set(context.WithoutCancel(ctx), right) }() // once more where it went wrong below
	if err := set(ctx, "d3Jvbmc="); err != nil {
		return err
	}
	if _, err := w.k(ctx, "delete", "pod", "-l", "app.kubernetes.io/name=mandate-consumer", "--wait"); err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	p, err := w.unready(ctx, "mandate-consumer", words...)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := set(ctx, right); err != nil {
		return err
	}
	if err := w.healed(ctx, "mandate-consumer", p, 3*time.Minute); err != nil {
		return err
	}
	w.say("ready %.0f s after the Secret was mended", time.Since(began).Seconds())
	return nil
}

func wrongToken(ctx context.Context, w *world) error {
	b := &batch{name: "token"}
	err := w.misled(ctx, "api-token", func(ctx context.Context) error { return w.enroll(ctx, b) }, "mandate service", "401")
	if err != nil {
		return err
	}
	return w.allWell(ctx, b, 2*time.Minute)
}

func wrongPassword(ctx context.Context, w *world) error {
	err := w.misled(ctx, "nats-password", func(context.Context) error { return nil }, "uthorization")
	if err != nil {
		return err
	}
	b := &batch{name: "password"}
	return errors.Join(w.enroll(ctx, b), w.allWell(ctx, b, time.Minute))
}
