package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// programs are those of the project; each is /<program> in its image.
var programs = []string{"mandate-consumer", "mail-consumer", "log-poller", "errand"}

// machines are the architectures that images are built for, and the oldest
// processors of each that they run on. Written down, since the builder's own
// environment must not decide.
var machines = map[string]string{
	"amd64": "GOAMD64=v1",
	"arm64": "GOARM64=v8.0",
}

func known() []string { return slices.Sorted(maps.Keys(machines)) }

// compile builds every program from source into dir, so that the result depends on
// nothing but the source and Go's version.
func compile(source, dir, arch string) error {
	level, ok := machines[arch]
	if !ok {
		return fmt.Errorf("architecture %q is none of %q", arch, known())
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=nodemo", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	cmd := exec.Command("go", args...) //nolint:gosec // nothing of it comes from elsewhere
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, level,
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOFIPS140=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build for %s in %s: %w\n%s", arch, source, err, said)
	}
	return nil
}
