package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are the project's programs; each is /<program> in its image.
var programs = []string{"mandate-consumer", "mail-consumer", "log-poller", "transaction-poller", "callback-receiver", "console", "errand"}

// baselines are the architectures, with the oldest processors that images run on, whatever the builder's environment says.
var baselines = map[string]string{"amd64": "GOAMD64=v1", "arm64": "GOARM64=v8.0"}

// compile builds every program from source into dir. The result depends only on the source and Go's version.
func (o *buildOrder) compile(dir, arch string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=nodemo",
		"-ldflags=-s -w -X errand/internal/programs.release=" + o.Version + " -X errand/internal/programs.commit=" + o.Revision,
		"-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	_, err = o.goTool(arch, args...)
	return err
}

// goTool runs the go command in the source, for an architecture, whatever the builder's environment says.
func (o *buildOrder) goTool(arch string, args ...string) ([]byte, error) {
	var said bytes.Buffer
	cmd := exec.Command("go", args...) //nolint:gosec // all arguments are ours
	cmd.Dir, cmd.Stderr = o.Source, &said
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, baselines[arch],
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s for %s in %s: %w\n%s", args[0], arch, o.Source, err, &said)
	}
	return output, nil
}
