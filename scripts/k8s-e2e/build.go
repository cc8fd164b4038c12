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
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// sources are the files that the binaries are made of, in this folder; their hash names the place they are kept in.
var sources = []string{"cluster/go.mod", "cluster/coredns/main.go", "trim.go"}

// commands are the binaries and their packages, in the order in which they are built.
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

// build is the command that makes them.
type build struct {
	place
	Check bool `help:"Build nothing; fail if validate would have to."`
}

// Run builds whatever is not there yet.
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

// check is an error that says what keeps validate from asking at once.
func (b *build) check() error {
	bin, err := b.folder()
	if err != nil {
		return err
	}
	absent := missing(filepath.Join(bin, "bin"), "kube-apiserver", "kubectl")
	if len(absent) > 0 {
		err = fmt.Errorf("not built yet: %s; `go run ./scripts/k8s-e2e build` does, in 10 to 20 minutes", strings.Join(absent, ", "))
	}
	return errors.Join(err, installed("etcd"))
}

// place is where things are kept; every command asks it.
type place struct {
	Cache string `env:"ERRAND_K8S_CACHE" type:"path" placeholder:"DIR" help:"Where binaries and a running cluster are kept; left out: errand-k8s in the user's cache."`
	Bin   string `type:"existingdir" placeholder:"DIR" help:"Use these binaries instead of building any."`
}

// cache is the folder of everything this program keeps.
func (p *place) cache() (string, error) {
	if p.Cache != "" {
		return p.Cache, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "errand-k8s"), err
}

// folder is where the binaries of these sources belong.
func (p *place) folder() (string, error) {
	cache, err := p.cache()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range sources {
		text, err := source(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	return filepath.Join(cache, hex.EncodeToString(sum.Sum(nil))[:12]), nil
}

// tree is the root of the project.
var tree = sync.OnceValues(func() (string, error) {
	out, err := output(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "errand"))
	if err != nil {
		return "", fmt.Errorf("run it inside errand's tree: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// source reads a file of this folder.
func source(name string) ([]byte, error) {
	root, err := tree()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(root, "scripts/k8s-e2e", name))
}

// missing are those of names that are not in bin.
func missing(bin string, names ...string) (out []string) {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			out = append(out, name)
		}
	}
	return out
}

// binaries gives the folder with all of them, built if need be.
func (p *place) binaries(ctx context.Context) (string, error) {
	if p.Bin != "" {
		return p.Bin, nil
	}
	dir, err := p.folder()
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
	fmt.Printf("building %d of %d programs into %s\nThe first time takes 15 minutes of processor time and 6 GB of Go's caches.\n", len(absent), len(names), bin)
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
		// Under another name first: what is there was written to its end.
		unfinished := filepath.Join(bin, "."+c.name)
		if _, err := goes(ctx, filepath.Join(dir, "src"), "build", "-mod=mod", "-trimpath", "-ldflags", flags, "-o", unfinished, c.pkg); err != nil {
			fmt.Println()
			return "", err
		}
		if err := os.Rename(unfinished, filepath.Join(bin, c.name)); err != nil {
			return "", err
		}
		fmt.Printf("%5.0f s\n", time.Since(began).Seconds())
	}
	return bin, nil
}

// prepare lays out the module that everything is built in, and gives the linker's flags: without a version
// Kubernetes calls itself v0.0.0, and whoever asks for it (KEDA does) is misled.
func prepare(ctx context.Context, src string) (string, error) {
	if err := os.MkdirAll(filepath.Join(src, "coredns"), 0o750); err != nil {
		return "", err
	}
	for _, name := range []string{"go.mod", "coredns/main.go"} {
		text, err := source(path.Join("cluster", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(src, name), text, 0o600); err != nil {
			return "", err
		}
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

// pinned is the version that cluster/go.mod requires of a module.
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
	return "", fmt.Errorf("cluster/go.mod requires no %s", module)
}

// module downloads a module at its pinned version, or the one after an @, and gives its folder.
func module(ctx context.Context, name string) (string, error) {
	if !strings.Contains(name, "@") {
		version, err := pinned(name)
		if err != nil {
			return "", err
		}
		name += "@" + version
	}
	out, err := goes(ctx, os.TempDir(), "mod", "download", "-json", name)
	if err != nil {
		return "", err
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", name, err)
	}
	return got.Dir, nil
}

// goes runs the go command in dir; the error holds what it said.
func goes(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-modcacherw -buildvcs=false", "GOWORK=off")
	return output(cmd)
}

// output runs cmd and gives what it prints; the error holds the end of what it complained of.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(said.String())
		return out.Bytes(), fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path)+" "+strings.Join(cmd.Args[1:min(len(cmd.Args), 6)], " "), err, text[max(0, len(text)-3000):])
	}
	return out.Bytes(), nil
}

// packages are the programs of this machine that are used, by the Debian package that has them.
var packages = map[string]string{"etcd": "etcd-server", "containerd": "containerd", "containerd-shim-runc-v2": "containerd", "ctr": "containerd",
	"runc": "runc", "ip": "iproute2", "nft": "nftables", "/usr/lib/cni/ptp": "containernetworking-plugins"}

// installed is an error that names the packages of which a program is missing.
func installed(programs ...string) error {
	var absent []string
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil && !slices.Contains(absent, packages[program]) {
			absent = append(absent, packages[program])
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return errors.New("missing on this machine: apt-get install --no-install-recommends " + strings.Join(absent, " "))
}
