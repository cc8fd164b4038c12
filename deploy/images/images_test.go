package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

const (
	epoch    = "1700000000"
	revision = "0123456789abcdef0123456789abcdef01234567"
	largest  = 20_000_000
)

// source is the project.
const source = "../.."

// architectures are those that images are built for.
func architectures() []string { return slices.Sorted(maps.Keys(baselines)) }

// dist has images that were built once, for every test that only reads them.
var dist string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "errand-images-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if dist, err = built(filepath.Join(dir, "dist"), source, 0o022, architectures()...); err != nil {
		panic(err)
	}
	m.Run()
}

func TestImagesContainTheProgramAndNothingElse(t *testing.T) {
	for _, arch := range architectures() {
		for _, program := range programs {
			path := filepath.Join(dist, program+"-"+arch+".tar")
			img := loaded(t, path, "localhost/errand/"+program+":1.2.3")

			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			created := time.Unix(1700000000, 0).UTC()
			want := v1.ConfigFile{OS: "linux", Architecture: arch, Created: v1.Time{Time: created}, Config: v1.Config{
				User: "65532:65532", WorkingDir: "/", Entrypoint: []string{"/" + program}, Labels: map[string]string{
					"org.opencontainers.image.title":       program,
					"org.opencontainers.image.description": "Part of errand: queue consumers that run requests at an e-mandate and an email service.",
					"org.opencontainers.image.version":     "1.2.3",
					"org.opencontainers.image.revision":    revision,
					"org.opencontainers.image.created":     created.Format(time.RFC3339),
				}}}
			got := *config
			got.RootFS, got.History = v1.RootFS{}, nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: its config (-want +got):\n%s", path, diff)
			}

			in := contents(t, img)
			if diff := cmp.Diff([]string{"etc/", "etc/ssl/", "etc/ssl/certs/", roots, "NOTICE", program}, in.names); diff != "" {
				t.Errorf("%s: its contents (-want +got):\n%s", path, diff)
			}
			for _, header := range in.headers {
				want := fs.FileMode(0o644)
				if header.Name == program {
					want = 0o755
				} else if strings.HasSuffix(header.Name, "/") {
					want = fs.ModeDir | 0o755
				}
				if got := header.FileInfo().Mode(); got != want || header.Uid != 0 || header.Gid != 0 {
					t.Errorf("%s: %s has mode %s and is owned by %d:%d, want %s of 0:0", path, header.Name, got, header.Uid, header.Gid, want)
				}
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			most := int64(largest)
			if program == "console" { // it has SQLite in it
				most = 26_000_000
			}
			if info.Size() > most || in.size > most {
				t.Errorf("%s has %d bytes, unpacked %d, want at most %d", path, info.Size(), in.size, most)
			}
			// A name that is only in the table of time zones: the image has no other table.
			if !bytes.Contains(in.text[program], []byte("Antarctica/Troll")) {
				t.Errorf("%s: the program does not contain the time zones", path)
			}
			file, err := elf.NewFile(bytes.NewReader(in.text[program]))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; file.Machine != want {
				t.Errorf("%s: the program is for %s, want %s", path, file.Machine, want)
			}
			for _, segment := range file.Progs {
				if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
					t.Errorf("%s: the program is not static, it has a segment %s", path, segment.Type)
				}
			}
			for _, text := range []string{"\nstdlib (LICENSE)\n", "github.com/nats-io/nats.go (LICENSE)\n", "Copyright 2009 The Go Authors.",
				"Apache License", "github.com/rs/zerolog (LICENSE)\n", "Mozilla Public License 2.0"} {
				if !bytes.Contains(in.text["NOTICE"], []byte(text)) {
					t.Errorf("%s: its NOTICE does not contain %q", path, text)
				}
			}
			if n := usable(t, in.text[roots]); n < 100 {
				t.Errorf("%s: %d CA certificates, want at least 100", path, n)
			}
		}
	}
}

// A different directory, umask and time make the same bytes, for one architecture as for the other.
func TestImagesAreTheSameWhereverTheyAreBuilt(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "a directory with another name")
	for _, part := range []string{"go.mod", "go.sum", "cmd", "docs/schemas", "internal", "pkg"} {
		from, to := filepath.Join(source, part), filepath.Join(elsewhere, part)
		info, err := os.Stat(from)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.CopyFS(to, os.DirFS(from))
		} else {
			var text []byte
			if text, err = os.ReadFile(from); err == nil {
				err = errors.Join(os.MkdirAll(elsewhere, 0o700), os.WriteFile(to, text, 0o600))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOAMD64", "v3") // the builder's settings must not matter
	t.Setenv("GOFLAGS", "-modfile=mine.mod")
	again, err := built(filepath.Join(t.TempDir(), "dist"), elsewhere, 0o077, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	here, there := sums(t, dist), sums(t, again)
	for _, found := range []map[string]string{here, there} { // the layouts name every architecture
		maps.DeleteFunc(found, func(path, _ string) bool { return !strings.Contains(path, "-amd64.") })
	}
	if diff := cmp.Diff(here, there); diff != "" {
		t.Errorf("files that differ (-here +there):\n%s", diff)
	}
	if len(here) != 2*len(programs) { // the archive and the bill of materials
		t.Errorf("only %d files compared", len(here))
	}
}

// What is pushed is the same as what is loaded.
func TestTheIndexContainsTheSameImages(t *testing.T) {
	for _, program := range programs {
		path, err := layout.FromPath(filepath.Join(dist, program))
		if err != nil {
			t.Fatal(err)
		}
		outer, err := path.ImageIndex()
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := outer.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(manifest.Manifests); n != 1 {
			t.Fatalf("%s: the layout names %d manifests, want one index", program, n)
		}
		if got := manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "1.2.3" {
			t.Errorf("%s: the index is called %q", program, got)
		}
		index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if manifest, err = index.IndexManifest(); err != nil {
			t.Fatal(err)
		}
		var archs []string
		for _, m := range manifest.Manifests {
			archs = append(archs, m.Platform.Architecture)
			if m.ArtifactType != "" {
				t.Errorf("%s: the index has the artifact type %q for an image, which tools drop", program, m.ArtifactType)
			}
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			got, err := img.ConfigName()
			if err != nil {
				t.Fatal(err)
			}
			want, err := loaded(t, filepath.Join(dist, program+"-"+m.Platform.Architecture+".tar"),
				"localhost/errand/"+program+":1.2.3").ConfigName()
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s for %s: the layout has %s, the archive %s", program, m.Platform.Architecture, got, want)
			}
		}
		if diff := cmp.Diff(architectures(), archs); diff != "" {
			t.Errorf("%s: architectures (-want +got):\n%s", program, diff)
		}
	}
}

// A directory that is not an earlier layout is not removed.
func TestADirectoryOfOthersIsNotRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "errand")
	mine := filepath.Join(dir, "mine")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(mine, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := writeLayout(dir, nil); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// A reader of advisories must find every linked module with its version.
func TestEachProgramHasABillOfMaterials(t *testing.T) {
	for _, arch := range architectures() {
		for _, program := range programs {
			text, err := os.ReadFile(filepath.Join(dist, program+"-"+arch+".cdx.json"))
			if err != nil {
				t.Fatal(err)
			}
			var bom struct {
				SpecVersion string
				Components  []struct {
					Name, Version, Purl string
					Licenses            []struct{ License struct{ ID string } }
				}
				Dependencies []struct {
					Ref       string
					DependsOn []string
				}
			}
			if err := json.Unmarshal(text, &bom); err != nil {
				t.Fatal(err)
			}
			versions, needs, needed := map[string]string{}, map[string][]string{}, map[string]bool{}
			for _, d := range bom.Dependencies {
				needs[d.Ref] = d.DependsOn
				for _, ref := range d.DependsOn {
					needed[ref] = true
				}
			}
			const client = "pkg:golang/github.com/nats-io/nats.go@"
			if !slices.ContainsFunc(needs[program], func(ref string) bool { return strings.HasPrefix(ref, client) }) {
				t.Errorf("%s %s: needs %q, and not nats.go", program, arch, needs[program])
			}
			for _, c := range bom.Components {
				versions[c.Name] = c.Version
				if len(c.Licenses) == 0 || c.Licenses[0].License.ID == "" {
					t.Errorf("%s %s: %s has no licence", program, arch, c.Name)
				}
				if _, listed := needs[c.Purl]; !listed || !needed[c.Purl] {
					t.Errorf("%s %s: nothing says what %s needs, or what needs it", program, arch, c.Name)
				}
				if want := "pkg:golang/" + c.Name + "@" + c.Version; c.Purl != want || c.Version == "" {
					t.Errorf("%s %s: %s is named %q, want %q", program, arch, c.Name, c.Purl, want)
				}
			}
			for _, name := range []string{"stdlib", "github.com/nats-io/nats.go", "github.com/rs/zerolog"} {
				if versions[name] == "" {
					t.Errorf("%s %s: %s is not listed", program, arch, name)
				}
			}
			if bom.SpecVersion != "1.6" {
				t.Errorf("%s %s: CycloneDX %q, want 1.6", program, arch, bom.SpecVersion)
			}
		}
	}
}

func TestProgramsSayWhatTheyWereBuiltFrom(t *testing.T) {
	for _, program := range programs {
		in := contents(t, loaded(t, filepath.Join(dist, program+"-amd64.tar"), "localhost/errand/"+program+":1.2.3"))
		path := filepath.Join(t.TempDir(), program)
		if err := os.WriteFile(path, in.text[program], 0o700); err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
			continue
		}
		said, err := exec.CommandContext(t.Context(), path, "--version").Output()
		if want := program + " 1.2.3 (" + revision + ", " + runtime.Version() + ")\n"; err != nil || string(said) != want {
			t.Errorf("%s --version: %q, %v, want %q", program, said, err, want)
		}
	}
}
