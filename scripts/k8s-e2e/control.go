//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// local is a Kubernetes whose components are processes on this machine.
type local struct {
	dir     string // of all its files
	bin     string
	address string // of the API server and of the node
	port    int    // of the API server
	ca      *authority
	*processes
}

// newLocal creates the keys and starts etcd and the API server.
func newLocal(ctx context.Context, dir, bin, address string) *local {
	c := &local{dir: dir, bin: bin, address: address}
	c.processes = newProcesses(c.path("logs"))
	must(os.MkdirAll(c.path("pki"), 0o700))
	ports := freePorts(address, 3)
	c.port = ports[0]
	c.keys()
	c.storage(ports[1], ports[2])
	c.server(ctx, ports[1])
	return c
}

func (c *local) path(parts ...string) string {
	return filepath.Join(append([]string{c.dir}, parts...)...)
}
func (c *local) pki(name string) string    { return c.path("pki", name) }
func (c *local) config(name string) string { return c.path(name + ".kubeconfig") }
func (c *local) url() string               { return fmt.Sprintf("https://%s:%d", c.address, c.port) }

// keys creates certificates for the servers and a kubeconfig for each client.
func (c *local) keys() {
	c.ca = newAuthority(c.path("pki"), "ca")
	c.ca.leaf("apiserver", "kube-apiserver", "", c.address, "127.0.0.1", "localhost", "kubernetes.default.svc")
	c.ca.leaf("apiserver-kubelet", "kube-apiserver-kubelet", "system:masters")
	c.ca.leaf("service-accounts", "service-accounts", "")
	for _, who := range []struct{ name, user, group string }{
		{"admin", "admin", "system:masters"},
		{"controllers", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"kubelet", "system:node:" + node, "system:nodes"},
		{"proxy", "system:kube-proxy", ""},
	} {
		c.ca.leaf(who.name, who.user, who.group)
		c.ca.kubeconfig(c.config(who.name), c.url(), fmt.Sprintf("client-certificate: %q, client-key: %q", c.pki(who.name+".crt"),
			c.pki(who.name+".key")))
	}
}

// storage starts etcd, without fsync: nothing has to survive this run.
func (c *local) storage(client, peer int) {
	at, peers := fmt.Sprintf("http://%s:%d", c.address, client), fmt.Sprintf("http://%s:%d", c.address, peer)
	c.start("etcd", get(exec.LookPath("etcd")), "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--listen-client-urls", at,
		"--advertise-client-urls", at,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
}

// server starts the API server and waits until it is ready.
func (c *local) server(ctx context.Context, etcd int) {
	c.start("kube-apiserver", filepath.Join(c.bin, "kube-apiserver"),
		fmt.Sprintf("--etcd-servers=http://%s:%d", c.address, etcd),
		"--bind-address="+c.address, "--advertise-address="+c.address, fmt.Sprintf("--secure-port=%d", c.port),
		"--endpoint-reconciler-type=none", // no pod uses it, and otherwise a loopback address is refused
		"--tls-cert-file="+c.pki("apiserver.crt"), "--tls-private-key-file="+c.pki("apiserver.key"), "--client-ca-file="+c.pki("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range="+services,
		"--service-account-key-file="+c.pki("service-accounts.key"), "--service-account-signing-key-file="+c.pki("service-accounts.key"),
		"--authorization-mode=Node,RBAC", "--kubelet-client-certificate="+c.pki("apiserver-kubelet.crt"),
		"--kubelet-client-key="+c.pki("apiserver-kubelet.key"), "--kubelet-preferred-address-types=InternalIP")
	c.waitFor(ctx, "kube-apiserver", 2*time.Minute, func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "get", "--raw", "/readyz")
		return err
	})
}

// controllers starts the controller manager and the scheduler.
func (c *local) controllers() {
	c.start("kube-controller-manager", filepath.Join(c.bin, "kube-controller-manager"), "--kubeconfig="+c.config("controllers"),
		"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.pki("service-accounts.key"), "--root-ca-file="+c.pki("ca.crt"))
	c.start("kube-scheduler", filepath.Join(c.bin, "kube-scheduler"), "--kubeconfig="+c.config("scheduler"), "--bind-address=127.0.0.1",
		"--leader-elect=false")
}

// kubectl runs kubectl as the administrator and returns its output.
func (c *local) kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectlWith(ctx, "", args...)
}

// kubectlWith is kubectl with a standard input.
func (c *local) kubectlWith(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.config("admin"), "HOME="+c.dir) // for its cache
	out, err := output(cmd)
	return strings.TrimSpace(string(out)), err
}

// freePorts returns n free ports of address.
func freePorts(address string, n int) (ports []int) {
	for range n {
		l := get(net.Listen("tcp", net.JoinHostPort(address, "0")))
		defer func() { _ = l.Close() }() // not before the end, so that the ports differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
