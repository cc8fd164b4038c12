//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// prove is the command that runs all assertions.
type prove struct {
	place
	Images string `type:"existingdir" placeholder:"DIR" help:"Use the image archives in this directory instead of building them."`
}

// Run prepares what a cluster needs and starts it in its own namespaces.
func (p *prove) Run(ctx context.Context) (err error) {
	defer failed(&err)
	needs("etcd", "containerd", "containerd-shim-runc-v2", "ctr", "runc", "ip", "nft", "/usr/lib/cni/ptp", "/bin/busybox")
	if os.Geteuid() != 0 {
		return errors.New("a node needs root: run it with sudo (validate does not)")
	}
	lock := acquireLock() // before anything is built that another run uses
	defer lock.Close()
	bin, images := p.binaries(ctx, len(commands)), p.Images
	if images == "" {
		images = archives(ctx, tree(), bin, p.cache())
	}
	err = runInNamespaces(ctx, filepath.Join(p.cache(), "run"), "--bin="+bin, "--tree="+tree(), "--images="+images)
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing is proven") // not exit status 0, as after a signal otherwise
	}
	return err
}

// inside is the command that runs in the namespaces, as their first process.
type inside struct {
	Dir    string `arg:""`
	Bin    string `required:""`
	Tree   string `required:""`
	Images string `required:""`
}

// Run starts the cluster with all images and runs the assertions until one fails.
func (i *inside) Run(ctx context.Context) (err error) {
	defer failed(&err)
	images := listArchives(i.Images)
	writeConfig(i.Dir)
	prepareMounts(i.Dir)
	network(ctx)
	w := &world{tree: i.Tree, progress: progress{time.Now()}}
	w.local = newLocal(ctx, i.Dir, i.Bin, address)
	w.logf("API server ready")
	w.controllers()
	w.startNode(ctx, images)
	w.logf("node ready, %d images loaded", len(images))
	for _, a := range assertions {
		w.logf("%s", a.text)
		a.run(ctx, w)
		must(w.broken())
	}
	w.logf("all of it holds. Not proven here: %s", notProven)
	return nil
}

// assertions are what is proven, each with what those before it have left.
var assertions = []struct {
	text string
	run  func(context.Context, *world)
}{
	{"one apply of the sandbox overlay starts everything under the restricted policy; another changes nothing", checkSandbox},
	{"the production overlay, three NATS servers with TLS and disks: an enrollment and a message succeed", checkProduction},
	{"every disk of NATS is lost; restored from the backup, nothing that was run is run again", checkBackup},
	{"a rolling restart of the programs under load repeats nothing, and NATS goes from " + older + " to " + newer + ": nothing is lost",
		checkUpgrade},
}

// notProven is what no assertion shows on this cluster.
const notProven = `that NetworkPolicies are enforced (this node's network has none), the chart of NATS (a
StatefulSet stands in for it), KEDA, more than one node, ingress of alerts.`

// checkSandbox applies the sandbox overlay and waits until everything is ready.
func checkSandbox(ctx context.Context, w *world) {
	// What kubectl calls "configured" may not be a change; the generation counts real ones, and new pods have new ids.
	const versions = `jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.uid}{"\n"}{end}`
	var seen [2]string
	for n := range seen {
		get(w.kubectl(ctx, "apply", "-k", filepath.Join(w.tree, "deploy/k8s/overlays/sandbox")))
		w.waitComplete(ctx, "errand-provision")
		w.waitSettled(ctx)
		seen[n] = get(w.k(ctx, "get", "deployments,jobs,services,configmaps,secrets,networkpolicies,poddisruptionbudgets,pods", "-o", versions))
	}
	if seen[0] != seen[1] {
		must(fmt.Errorf("applying it again changed:\n%s\nto:\n%s", seen[0], seen[1]))
	}
}
