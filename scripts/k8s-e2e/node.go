//go:build linux

package main

import (
	"context"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
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

var kindOf = regexp.MustCompile(`(?m)^kind: (\S+)$`)

// documents returns the documents of a YAML stream with a wanted kind.
func documents(yaml string, wanted func(kind string) bool) string {
	var kept []string
	for one := range strings.SplitSeq(yaml, "\n---\n") {
		if kind := kindOf.FindStringSubmatch(one); kind != nil && wanted(kind[1]) {
			kept = append(kept, one)
		}
	}
	return strings.Join(kept, "\n---\n")
}

// startKEDA starts KEDA's operator and metrics adapter as processes. They use the service account that they would have in a
// pod, and so have the permissions of KEDA's own RBAC rules.
func (c *local) startKEDA(ctx context.Context) error {
	module, err := module(ctx, "github.com/kedacore/keda/v2")
	if err != nil {
		return err
	}
	all, err := c.kubectl(ctx, "kustomize", filepath.Join(module, "config/default"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.pki("ca.crt"))
	if err != nil {
		return err
	}
	// The API server reaches the adapter on this machine.
	objects := documents(all, func(kind string) bool {
		return kind != "Deployment" && kind != "Service" && kind != "APIService" && kind != "ValidatingWebhookConfiguration"
	}) + fmt.Sprintf(`
---
apiVersion: v1
kind: Service
metadata: {name: keda-metrics-apiserver, namespace: keda}
spec: {type: ExternalName, externalName: localhost, ports: [{port: 6443}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.external.metrics.k8s.io}
spec:
  service: {name: keda-metrics-apiserver, namespace: keda, port: 6443}
  group: external.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  caBundle: %s
`, base64.StdEncoding.EncodeToString(ca))
	if _, err := c.kubectlWith(ctx, objects, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	token, err := c.kubectl(ctx, "create", "token", "keda-operator", "-n", "keda", "--duration", "24h")
	if err != nil {
		return err
	}
	if err := c.ca.kubeconfig(c.config("keda"), c.url(), "token: "+token); err != nil {
		return err
	}
	for from, to := range map[string]string{"ca.crt": "ca.crt", "keda.crt": "tls.crt", "keda.key": "tls.key"} {
		text, err := os.ReadFile(c.pki(from))
		if err != nil {
			return err
		}
		if err := errors.Join(os.MkdirAll(c.path("keda"), 0o700), os.WriteFile(c.path("keda", to), text, 0o600)); err != nil {
			return err
		}
	}
	config, certs := c.config("keda"), c.path("keda")
	env := []string{"KUBECONFIG=" + config, "WATCH_NAMESPACE=", "POD_NAMESPACE=keda", "POD_NAME=keda-operator-0",
		"KEDA_CLUSTER_OBJECT_NAMESPACE=keda"}
	err = errors.Join(
		c.start("keda-operator", env, filepath.Join(c.bin, "keda-operator"), "--kubeconfig="+config, "--cert-dir="+certs,
			"--metrics-bind-address=127.0.0.1:18090", "--health-probe-bind-address=127.0.0.1:18091",
			"--metrics-service-bind-address=127.0.0.1:9666"),
		c.start("keda-adapter", env, filepath.Join(c.bin, "keda-adapter"), "--kubeconfig="+config, "--lister-kubeconfig="+config,
			"--authentication-kubeconfig="+config, "--authorization-kubeconfig="+config, "--bind-address=127.0.0.1",
			"--secure-port=6443", "--port=18092",
			"--cert-dir="+certs, "--tls-cert-file="+filepath.Join(certs, "tls.crt"), "--tls-private-key-file="+filepath.Join(certs, "tls.key"),
			"--client-ca-file="+filepath.Join(certs, "ca.crt"), "--metrics-service-address=localhost:9666"))
	if err != nil {
		return err
	}
	return c.waitFor(ctx, "KEDA's metrics API", 2*time.Minute, func(ctx context.Context) error {
		said, err := c.kubectl(ctx, "get", "apiservice", "v1beta1.external.metrics.k8s.io", "-o",
			`jsonpath={.status.conditions[?(@.type=="Available")]}`)
		if err == nil && !strings.Contains(said, `"status":"True"`) {
			err = errors.New(said)
		}
		return err
	})
}
