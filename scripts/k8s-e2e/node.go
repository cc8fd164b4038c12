//go:build linux

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// The network of the cluster. It has its own namespace, so these addresses cannot collide with others.
const (
	node     = "node"
	address  = "10.98.0.1" // of the node, where everything except pods listens
	pods     = "10.98.1.0/24"
	services = "10.96.0.0/16"
)

//go:embed node
var nodeFiles embed.FS

// network creates the namespace's only interface besides the pods'.
func network(ctx context.Context) error {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type bridge", // without ports: it only has the address
		"addr add " + address + "/24 dev node0",
		"link set node0 up",
		"route add default via " + address,
	} {
		if _, err := output(exec.CommandContext(ctx, "ip", strings.Fields(line)...)); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
}

// writeConfig writes the configuration of the node's programs, and a resolv.conf for the cluster's names.
func (c *local) writeConfig() error {
	if err := os.MkdirAll(c.path("cni"), 0o750); err != nil {
		return err
	}
	resolve := "search svc.cluster.local cluster.local\nnameserver " + address + "\n"
	if err := os.WriteFile(c.path("resolv.conf"), []byte(resolve), 0o600); err != nil {
		return err
	}
	all, err := template.ParseFS(nodeFiles, "node/*")
	if err != nil {
		return err
	}
	for _, name := range []string{"kubelet.yaml", "containerd.toml", "cni.conflist", "Corefile"} {
		into := c.path(name)
		if path.Ext(name) == ".conflist" {
			into = c.path("cni", name)
		}
		file, err := os.Create(into)
		if err != nil {
			return err
		}
		err = all.ExecuteTemplate(file, name, map[string]string{"Dir": c.dir, "Address": address, "Pods": pods, "Cgroup": cgroup})
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts CoreDNS, kube-proxy, containerd with the images, and kubelet.
func (c *local) startNode(ctx context.Context, images []string) error {
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		return err
	}
	err = errors.Join(
		c.start("coredns", nil, filepath.Join(c.bin, "coredns"), "-conf", c.path("Corefile")),
		c.start("kube-proxy", nil, filepath.Join(c.bin, "kube-proxy"), "--kubeconfig="+c.config("proxy"), "--hostname-override="+node,
			"--proxy-mode=nftables", "--cluster-cidr="+pods, "--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:10249",
			// A namespace may not set these limits of the machine.
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s"),
		c.start("containerd", nil, containerd, "--config", c.path("containerd.toml")))
	if err != nil {
		return err
	}
	ctr := func(ctx context.Context, args ...string) error {
		_, err := output(exec.CommandContext(ctx, "ctr", append([]string{"-a", c.path("containerd.sock"), "-n", "k8s.io"}, args...)...))
		return err
	}
	err = c.waitFor(ctx, "containerd", 30*time.Second, func(ctx context.Context) error { return ctr(ctx, "version") })
	if err != nil {
		return err
	}
	for _, image := range images {
		if err := ctr(ctx, "images", "import", image); err != nil {
			return err
		}
	}
	err = c.start("kubelet", nil, filepath.Join(c.bin, "kubelet"), "--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.config("kubelet"),
		"--hostname-override="+node, "--node-ip="+address, "--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("kubelet-pki"))
	if err != nil {
		return err
	}
	return c.waitFor(ctx, "the node", 2*time.Minute, func(ctx context.Context) error {
		said, err := c.kubectl(ctx, "get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		if err == nil && !strings.Contains(said, `"status":"True"`) {
			err = fmt.Errorf("not ready: %s", said)
		}
		return err
	})
}
