package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// programs are the project's programs; each is /<program> in its image.
var programs = []string{"mandate-consumer", "mail-consumer", "log-poller", "transaction-poller", "callback-receiver", "console", "errand"}

// baselines are the architectures, with the oldest processors that images run on, whatever the builder's environment says.
var baselines = map[string]string{"amd64": "GOAMD64=v1", "arm64": "GOARM64=v8.0"}

func architectures() []string { return slices.Sorted(maps.Keys(baselines)) }

// compile builds every program from source into dir. The result depends only on the source and Go's version.
func (o *buildOrder) compile(dir, arch string) error {
	level, ok := baselines[arch]
	if !ok {
		return fmt.Errorf("architecture %q is not one of %q", arch, architectures())
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=nodemo",
		"-ldflags=-s -w -X errand/internal/programs.release=" + o.version + " -X errand/internal/programs.commit=" + o.revision,
		"-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.Command("go", args...) //nolint:gosec // all arguments are ours
	cmd.Dir = o.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, level,
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s in %s: %w\n%s", arch, o.source, err, output)
	}
	return nil
}
