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
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// buildOrder says what to build and how to name it.
type buildOrder struct {
	source, out       string
	archs             []string
	version, revision string
	created           time.Time
}

const usage = `Builds images of the programs for each architecture, without a container tool.

    go run -C deploy/images . --version 1.4.0
    go run -C deploy/images . --arch amd64

Paths are relative to deploy/images. The creation time of the images is SOURCE_DATE_EPOCH or, without it, the time of
the commit.

`

func run(args []string, out, errs io.Writer) int {
	o := buildOrder{}
	flags := flag.NewFlagSet("images", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		fmt.Fprint(errs, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.source, "source", "../..", "the project's `directory`")
	flags.StringVar(&o.out, "out", "../../dist", "the `directory` to write to")
	flags.StringVar(&o.version, "version", "dev", "tag of the images")
	flags.StringVar(&o.revision, "revision", "", "commit that the images name (default: from git)")
	archs := flags.String("arch", "amd64,arm64", "architectures to build for, a `list` of "+strings.Join(architectures(), ", "))
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errs, "images: %q is not a flag; see --help\n", flags.Arg(0))
		return 2
	}
	o.archs = strings.Split(*archs, ",")
	err := o.date(errs)
	if err == nil {
		err = o.run(out)
	}
	if err != nil {
		fmt.Fprintln(errs, "images:", err)
		return 1
	}
	return 0
}

// date fills in revision and time from git and the environment.
func (o *buildOrder) date(errs io.Writer) error {
	git := func(args ...string) string {
		//nolint:gosec // no shell, and the directory is the caller's
		answer, err := exec.Command("git", append([]string{"-C", o.source}, args...)...).Output()
		if err != nil {
			return "" // no git, no clone, or a clone that git does not trust
		}
		return strings.TrimSpace(string(answer))
	}
	if o.revision == "" {
		o.revision = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
	}
	if o.revision == "" {
		fmt.Fprintln(errs, "images: git knows no revision of the source, so the images name none; use --revision")
	}
	seconds := cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), git("log", "-1", "--format=%ct"), "0")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", seconds)
	}
	o.created = time.Unix(n, 0).UTC()
	return nil
}

func (o *buildOrder) run(out io.Writer) (err error) {
	scratch, err := os.MkdirTemp("", "errand-images-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	if err := os.MkdirAll(o.out, 0o755); err != nil { //nolint:gosec // images are not secret
		return err
	}
	for _, arch := range o.archs {
		fmt.Fprintf(out, "building for %s\n", arch)
		if err := o.compile(filepath.Join(scratch, arch), arch); err != nil {
			return err
		}
	}
	for _, program := range programs {
		var all []image
		for _, arch := range o.archs {
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
				err = img.archive(o.out, out)
			}
			if err != nil {
				return err
			}
			all = append(all, img)
		}
		if err := writeLayout(filepath.Join(o.out, program), all, out); err != nil {
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
		key + "version":     o.version,
		key + "created":     o.created.Format(time.RFC3339),
	}
	if o.revision != "" {
		labels[key+"revision"] = o.revision
	}
	return labels
}
