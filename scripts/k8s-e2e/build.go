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
	"time"
)

// directory is this one, in the tree.
const directory = "scripts/k8s-e2e"

// commands are the binaries and their packages, in the order of building.
var commands = []struct{ name, pkg string }{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
	{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
	{"keda-operator", "github.com/kedacore/keda/v2/cmd/operator"},
	{"keda-adapter", "github.com/kedacore/keda/v2/cmd/adapter"},
	{"nats-server", "github.com/nats-io/nats-server/v2"},
	{"coredns", "errand/scripts/k8s-e2e/cluster/coredns"},
}

// build is the command that builds the binaries.
type build struct {
	place
	Check bool `help:"Build nothing; fail if validate would have to build."`
}

// Run builds what is missing.
func (b *build) Run(ctx context.Context) error {
	if b.Check {
		return b.check()
	}
	bin, err := b.binaries(ctx)
	if err == nil {
		fmt.Println("built:", bin)
	}
	return err
}

// check returns an error that says what validate still needs.
func (b *build) check() error {
	bin, err := b.binaryDir()
	if err != nil {
		return err
	}
	absent := missing(filepath.Join(bin, "bin"), "kube-apiserver", "kubectl")
	if len(absent) > 0 {
		err = fmt.Errorf("not built yet: %s; `go run -C scripts/k8s-e2e . build` does, in 10 to 20 minutes", strings.Join(absent, ", "))
	}
	return errors.Join(err, installed("etcd"))
}

// place has the directories that every command uses.
type place struct {
	Cache string `env:"ERRAND_K8S_CACHE" type:"path" placeholder:"DIR" help:"For binaries and a cluster; default: the user's cache."`
}

// cache is the directory of everything that this program keeps.
func (p *place) cache() (string, error) {
	if p.Cache != "" {
		return p.Cache, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "errand-k8s"), err
}

// binaryDir is the directory of the binaries of these sources.
func (p *place) binaryDir() (string, error) {
	cache, err := p.cache()
	if err != nil {
		return "", err
	}
	root, err := tree()
	if err != nil {
		return "", err
	}
	// What determines the binaries: the files of cluster, and what is cut out of KEDA.
	here, sum := os.DirFS(filepath.Join(root, directory)), sha256.New()
	for _, from := range []string{"cluster", "trim.go"} {
		err = errors.Join(err, fs.WalkDir(here, from, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := fs.ReadFile(here, name)
			fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
			return err
		}))
	}
	return filepath.Join(cache, hex.EncodeToString(sum.Sum(nil))[:12]), err
}

// tree is the root of the project.
var tree = sync.OnceValues(func() (string, error) {
	out, err := output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "errand"))
	if err != nil {
		return "", fmt.Errorf("run it inside errand's tree: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// source reads a file of this directory.
func source(name string) ([]byte, error) {
	root, err := tree()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(root, directory, name))
}

// missing returns the names that are not in bin.
func missing(bin string, names ...string) (out []string) {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// binaries returns the directory of the binaries, after it has built what is missing.
func (p *place) binaries(ctx context.Context) (string, error) {
	dir, err := p.binaryDir()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bin")
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	absent := missing(bin, names...)
	if len(absent) == 0 {
		return bin, nil
	}
	fmt.Printf("building %d of %d programs into %s\nThe first time takes 15 minutes of CPU time and 6 GB of Go's caches.\n", len(absent),
		len(names), bin)
	flags, err := prepare(ctx, filepath.Join(dir, "src"))
	if err != nil {
		return "", err
	}
	done := 0
	for _, c := range commands {
		if !slices.Contains(absent, c.name) {
			continue
		}
		done++
		fmt.Printf("  %2d/%d  %-24s", done, len(absent), c.name)
		began := time.Now()
		// Under a temporary name first, so that a binary with its final name is complete.
		unfinished := filepath.Join(bin, "."+c.name)
		_, err := goCommand(ctx, filepath.Join(dir, "src"), "build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", unfinished, c.pkg)
		if err == nil {
			err = os.Rename(unfinished, filepath.Join(bin, c.name))
		}
		if err != nil {
			fmt.Println()
			return "", err
		}
		fmt.Printf("%5.0f s\n", time.Since(began).Seconds())
	}
	return bin, nil
}

// prepare writes the module in which everything is built, and returns the linker's flags: without a version Kubernetes
// calls itself v0.0.0, which misleads KEDA.
func prepare(ctx context.Context, src string) (string, error) {
	root, err := tree()
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(src), os.CopyFS(src, os.DirFS(filepath.Join(root, directory, "cluster")))); err != nil {
		return "", err
	}
	keda, err := module(ctx, "github.com/kedacore/keda/v2")
	if err != nil {
		return "", err
	}
	if err := trimKEDA(keda, filepath.Join(src, "keda")); err != nil {
		return "", err
	}
	version, err := pinned("k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	flags := []string{"-s -w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
			pkg, version, parts[0], parts[1]))
	}
	return strings.Join(flags, " "), nil
}

// pinned is the version of a module in cluster/go.mod.
func pinned(module string) (string, error) {
	text, err := source("cluster/go.mod")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) == 2 && words[0] == module {
			return words[1], nil
		}
	}
	return "", fmt.Errorf("cluster/go.mod does not require %s", module)
}

// module downloads a module with its pinned version, or the version after an @, and returns its directory.
func module(ctx context.Context, name string) (string, error) {
	if !strings.Contains(name, "@") {
		version, err := pinned(name)
		if err != nil {
			return "", err
		}
		name += "@" + version
	}
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", name)
	if err != nil {
		return "", err
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", name, err)
	}
	return got.Dir, nil
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

// installed returns an error that names the packages of missing programs.
func installed(programs ...string) error {
	var absent []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(absent, packages[program]) {
			absent = append(absent, packages[program])
		}
	}
	if len(absent) > 0 {
		return errors.New("missing on this machine: apt-get install --no-install-recommends " + strings.Join(absent, " "))
	}
	return nil
}
