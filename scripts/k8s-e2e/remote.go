//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// theirs says how to use a cluster that this program did not start.
type theirs struct {
	Kubeconfig string `type:"existingfile" placeholder:"FILE" help:"Use this cluster, which must be yours to break. Needs kubectl."`
	Context    string `placeholder:"NAME" help:"The context of that file; default: its current one."`
	Load       string `placeholder:"COMMAND" help:"Shell command that loads $$ARCHIVE into that cluster. Default: it has the images."`
	Kill       string `placeholder:"COMMAND" help:"Shell command that kills $$CONTAINER on $$NODE. Without it, no kills."`
}

// notProvenThere is what no assertion shows on a cluster that this program did not start.
const notProvenThere = "what was NOT RUN above, that NetworkPolicies are enforced, volumes and more than one NATS server."

// remote is a cluster that this program did not start.
type remote struct {
	theirs
	forwards sync.WaitGroup
}

// onTheirs runs the assertions on the cluster of the flags. Nothing of them is left if they hold.
func (p *prove) onTheirs(ctx context.Context) error {
	root, err := tree()
	if err != nil {
		return err
	}
	r := &remote{theirs: p.theirs}
	ctx, stop := context.WithCancel(ctx)
	defer r.forwards.Wait()
	defer stop()
	w := &world{cluster: r, progress: progress{time.Now()}, tree: root, notProven: notProvenThere}
	if w.omitted, err = r.check(ctx); err != nil {
		return err
	}
	if p.Load != "" {
		if err := p.load(ctx, w, r); err != nil {
			return err
		}
	}
	if err := w.prove(ctx, p.Only); err != nil {
		return fmt.Errorf("%w; what was deployed is still there, until kubectl delete namespace %s", err, namespace)
	}
	_, err = r.kubectl(ctx, "delete", "namespace", namespace)
	return err
}

// check returns why some assertions cannot be run on the cluster, and an error if none may be.
func (r *remote) check(ctx context.Context) (omitted map[string]string, err error) {
	there, err := r.kubectl(ctx, "get", "namespace", namespace, "--ignore-not-found", "-o", "name")
	if err != nil {
		return nil, err
	}
	if there != "" {
		return nil, fmt.Errorf("the cluster has a namespace %s already: if nobody needs it, kubectl delete namespace %s", namespace, namespace)
	}
	keda, err := r.kubectl(ctx, "get", "customresourcedefinition", "scaledobjects.keda.sh", "--ignore-not-found", "-o", "name")
	if err != nil {
		return nil, err
	}
	omitted = map[string]string{}
	for _, a := range assertions {
		switch {
		case a.needs == "kill" && r.Kill == "":
			omitted[a.name] = "--kill does not say how"
		case a.needs == "KEDA" && keda == "":
			omitted[a.name] = "the cluster has no KEDA"
		}
	}
	return omitted, nil
}

// load loads the images of this tree, or those of --images.
func (p *prove) load(ctx context.Context, w *world, r *remote) error {
	arch, err := r.kubectl(ctx, "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.architecture}")
	if err != nil {
		return err
	}
	dir := p.Images
	if dir == "" {
		cache, err := p.cache()
		if err != nil {
			return err
		}
		if dir, err = archives(ctx, w.tree, cache, arch); err != nil {
			return err
		}
	}
	images, err := listArchives(dir, arch)
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := shell(ctx, p.Load, "ARCHIVE="+image); err != nil {
			return err
		}
		w.logf("loaded %s", filepath.Base(image))
	}
	return nil
}

// shell runs a command of the command line.
func shell(ctx context.Context, command string, env ...string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), env...)
	_, err := output(cmd)
	return err
}

func (r *remote) kubectl(ctx context.Context, args ...string) (string, error) {
	flags := []string{"--kubeconfig", r.Kubeconfig}
	if r.Context != "" {
		flags = append(flags, "--context", r.Context)
	}
	out, err := output(exec.CommandContext(ctx, "kubectl", append(flags, args...)...))
	return strings.TrimSpace(string(out)), err
}

// reach forwards a port of this machine, again when kubectl ends, which it does when a connection breaks.
func (r *remote) reach(ctx context.Context, target string, port int) (string, error) {
	ports, err := freePorts("127.0.0.1", 1)
	if err != nil {
		return "", err
	}
	address, failed := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), make(chan error, 1)
	r.forwards.Go(func() {
		for ctx.Err() == nil {
			_, err := r.kubectl(ctx, "-n", namespace, "port-forward", target, fmt.Sprintf("%d:%d", ports[0], port))
			select {
			case failed <- err:
			default: // nobody waits for it
			}
			_ = pause(ctx, time.Second/4)
		}
	})
	return address, until(ctx, 30*time.Second, func(ctx context.Context) error {
		select {
		case err := <-failed:
			return err
		default:
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func (r *remote) kill9(ctx context.Context, p pod) error {
	if r.Kill == "" {
		return errors.New("--kill does not say how")
	}
	return shell(ctx, r.Kill, "NODE="+p.Spec.NodeName, "CONTAINER="+p.containerID())
}

// broken: the parts of the cluster are their owner's to watch.
func (r *remote) broken() error { return nil }
