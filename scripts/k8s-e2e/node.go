//go:build linux

package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
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
func network(ctx context.Context) {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type bridge", // without ports: it only has the address
		"addr add " + address + "/24 dev node0",
		"link set node0 up",
		"route add default via " + address,
	} {
		get(output(exec.CommandContext(ctx, "ip", strings.Fields(line)...)))
	}
	must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600))
}

// writeConfig writes the configuration of the node's programs to dir, and a resolv.conf for the cluster's names.
func writeConfig(dir string) {
	must(os.MkdirAll(filepath.Join(dir, "cni"), 0o750))
	resolve := "search svc.cluster.local cluster.local\nnameserver " + address + "\n"
	must(os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte(resolve), 0o600))
	all := get(template.ParseFS(nodeFiles, "node/*"))
	for name, into := range map[string]string{"kubelet.yaml": "", "containerd.toml": "", "cni.conflist": "cni", "Corefile": ""} {
		file := get(os.Create(filepath.Join(dir, into, name)))
		must(all.ExecuteTemplate(file, name, map[string]string{"Dir": dir, "Address": address, "Pods": pods, "Cgroup": cgroup}))
		must(file.Close())
	}
}

// startNode starts CoreDNS, kube-proxy, containerd with the images, and kubelet.
func (c *local) startNode(ctx context.Context, images []string) {
	c.start("coredns", filepath.Join(c.bin, "coredns"), "-conf", c.path("Corefile"))
	c.start("kube-proxy", filepath.Join(c.bin, "kube-proxy"), "--kubeconfig="+c.config("proxy"), "--hostname-override="+node,
		"--proxy-mode=nftables", "--cluster-cidr="+pods, "--healthz-bind-address=", "--metrics-bind-address=127.0.0.1:10249",
		// A namespace may not set these limits of the machine.
		"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s")
	c.start("containerd", get(exec.LookPath("containerd")), "--config", c.path("containerd.toml"))
	ctr := func(ctx context.Context, args ...string) error {
		_, err := output(exec.CommandContext(ctx, "ctr", append([]string{"-a", c.path("containerd.sock"), "-n", "k8s.io"}, args...)...))
		return err
	}
	c.waitFor(ctx, "containerd", 30*time.Second, func(ctx context.Context) error { return ctr(ctx, "version") })
	for _, image := range images {
		must(ctr(ctx, "images", "import", image))
	}
	c.start("kubelet", filepath.Join(c.bin, "kubelet"), "--config="+c.path("kubelet.yaml"), "--kubeconfig="+c.config("kubelet"),
		"--hostname-override="+node, "--node-ip="+address, "--root-dir="+c.path("kubelet"), "--cert-dir="+c.path("kubelet-pki"))
	c.waitFor(ctx, "the node", 2*time.Minute, func(ctx context.Context) error {
		said, err := c.kubectl(ctx, "get", "node", node, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		if err == nil && !strings.Contains(said, `"status":"True"`) {
			err = fmt.Errorf("not ready: %s", said)
		}
		return err
	})
}
