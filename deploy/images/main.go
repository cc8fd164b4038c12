// Command images packs the programs as container images. It needs Go and the source, but
// no container tool, no registry and no root:
//
//	go build for each architecture
//	    └─► one layer: the program, CA certificates, the licences of what it links
//	            ├─► dist/<program>-<arch>.tar   docker-archive, to load
//	            ├─► dist/<program>/             OCI layout of all architectures, to push
//	            └─► dist/<program>-<arch>.cdx.json   what is linked into it, with licences (CycloneDX)
//
// The same source, version and Go always make the same bytes.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

func main() { build() }

// buildOrder says what to build and how to name it.
type buildOrder struct {
	Source   string   `default:"../.." help:"The project's directory."`
	Out      string   `default:"../../dist" help:"Directory to write to."`
	Version  string   `default:"dev" help:"Tag of the images."`
	Revision string   `help:"Commit that the images name; default: from git."`
	Arch     []string `default:"amd64,arm64" enum:"amd64,arm64" help:"Architectures to build for."`

	created time.Time
}

const about = `Build images of the programs for each architecture, without a container tool.

Paths are relative to deploy/images. The creation time of the images is SOURCE_DATE_EPOCH or, without it, the time of the commit.`

// build does what the command line orders.
func build() {
	command := kong.Parse(new(buildOrder), kong.Name("images"), kong.Description(about), kong.UsageOnError())
	command.FatalIfErrorf(command.Run())
}

// date fills in revision and time from git and the environment.
func (o *buildOrder) date() error {
	git := func(args ...string) string {
		//nolint:gosec // no shell, and the directory is the caller's
		answer, err := exec.Command("git", append([]string{"-C", o.Source}, args...)...).Output()
		if err != nil {
			return "" // no git, no clone, or a clone that git does not trust
		}
		return strings.TrimSpace(string(answer))
	}
	if o.Revision == "" {
		o.Revision = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
	}
	if o.Revision == "" {
		fmt.Fprintln(os.Stderr, "images: git knows no revision of the source, so the images name none; use --revision")
	}
	seconds := cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), git("log", "-1", "--format=%ct"), "0")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", seconds)
	}
	o.created = time.Unix(n, 0).UTC()
	return nil
}

// Run builds every program for every architecture, and packs them.
func (o *buildOrder) Run() (err error) {
	if err := o.date(); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "errand-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := os.MkdirAll(o.Out, 0o755); err != nil { //nolint:gosec // images are not secret
		return err
	}
	for _, arch := range o.Arch {
		fmt.Printf("building for %s\n", arch)
		if err := o.compile(filepath.Join(scratch, arch), arch); err != nil {
			return err
		}
	}
	for _, program := range programs {
		var all []image
		for _, arch := range o.Arch {
			binary := filepath.Join(scratch, arch, program)
			modules, err := o.linked(program, arch)
			if err == nil {
				err = o.writeSBOM(program, arch, binary, modules)
			}
			if err != nil {
				return err
			}
			img, err := o.pack(program, arch, binary, notice(modules))
			if err == nil {
				err = img.archive(o.Out)
			}
			if err != nil {
				return err
			}
			all = append(all, img)
		}
		if err := writeLayout(filepath.Join(o.Out, program), all); err != nil {
			return err
		}
	}
	return nil
}

// labels describe an image, with the names that registries know.
func (o *buildOrder) labels(program string) map[string]string {
	const key = "org.opencontainers.image."
	labels := map[string]string{
		key + "title":       program,
		key + "description": "Part of errand: queue consumers that run requests at an e-mandate and an email service.",
		key + "version":     o.Version,
		key + "created":     o.created.Format(time.RFC3339),
	}
	if o.Revision != "" {
		labels[key+"revision"] = o.Revision
	}
	return labels
}
