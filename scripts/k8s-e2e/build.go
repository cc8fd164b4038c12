//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// directory is this one, in the tree.
const directory = "scripts/k8s-e2e"

// commands are the binaries and their packages, in the order of building. The first toValidate are all that validate runs.
var commands = []struct{ name, pkg string }{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"nats-server", "github.com/nats-io/nats-server/v2"},
	{"coredns", "errand/scripts/k8s-e2e/cluster/coredns"},
}

const toValidate = 2

// place has the directories that every command uses.
type place struct {
	Cache string `env:"ERRAND_K8S_CACHE" type:"path" placeholder:"DIR" help:"For binaries and a cluster; default: the user's cache."`
}

// cache is the directory of everything that this program keeps.
func (p *place) cache() string {
	if p.Cache != "" {
		return p.Cache
	}
	return filepath.Join(get(os.UserCacheDir()), "errand-k8s")
}

// sources are what the binaries are built from.
func sources() fs.FS { return os.DirFS(filepath.Join(tree(), directory, "cluster")) }

// binaryDir is the directory of the binaries of these sources.
func (p *place) binaryDir() string {
	sum := sha256.New()
	must(fs.WalkDir(sources(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(sources(), name)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	}))
	return filepath.Join(p.cache(), hex.EncodeToString(sum.Sum(nil))[:12], "bin")
}

// tree is the root of the project.
var tree = sync.OnceValue(func() string {
	return strings.TrimSpace(string(get(output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "errand")))))
})

// missing reports whether a binary is not in a directory.
func missing(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err != nil
}

// binaries returns the directory of the binaries, after it has built what is missing of the first n.
func (p *place) binaries(ctx context.Context, n int) string {
	bin := p.binaryDir()
	src := filepath.Join(filepath.Dir(bin), "src")
	copied := false
	for i, c := range commands[:n] {
		if !missing(bin, c.name) {
			continue
		}
		if !copied { // go build writes go.sum beside the go.mod
			must(errors.Join(os.RemoveAll(src), os.CopyFS(src, sources())))
			copied = true
		}
		fmt.Printf("building %d of %d: %s\n", i+1, n, c.name)
		// Under a temporary name first, so that a binary with its final name is complete.
		unfinished := filepath.Join(bin, "."+c.name)
		get(goCommand(ctx, src, "build", "-mod=mod", "-trimpath", "-ldflags", "-s -w", "-o", unfinished, c.pkg))
		must(os.Rename(unfinished, filepath.Join(bin, c.name)))
	}
	return bin
}

// module downloads a module, named with its version, and returns its directory.
func module(ctx context.Context, name string) string {
	var got struct{ Dir string }
	must(json.Unmarshal(get(goCommand(ctx, os.TempDir(), "mod", "download", "-json", name)), &got))
	return got.Dir
}

// goCommand runs the go command in dir; the error contains its messages.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-modcacherw -buildvcs=false", "GOWORK=off")
	return output(cmd)
}

// output runs cmd and returns its standard output; the error contains the end of its standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return out.Bytes(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path)+" "+strings.Join(cmd.Args[1:min(len(cmd.Args), 6)], " "), err,
			text[max(0, len(text)-3000):])
	}
	return out.Bytes(), nil
}

// packages maps the programs of this machine that are used to their Debian packages.
var packages = map[string]string{"etcd": "etcd-server", "containerd": "containerd", "containerd-shim-runc-v2": "containerd",
	"ctr": "containerd", "/bin/busybox": "busybox-static", "runc": "runc", "ip": "iproute2", "nft": "nftables",
	"/usr/lib/cni/ptp": "containernetworking-plugins"}

// needs ends the run with an error that names the packages of missing programs.
func needs(programs ...string) {
	var absent []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(absent, packages[program]) {
			absent = append(absent, packages[program])
		}
	}
	if len(absent) > 0 {
		must(errors.New("missing on this machine: apt-get install --no-install-recommends " + strings.Join(absent, " ")))
	}
}
