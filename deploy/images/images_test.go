package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// dist holds images as they were ordered once, for every test that only looks.
var dist string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "errand-images-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if dist, err = built(filepath.Join(dir, "dist"), source, 0o022); err != nil {
		panic(err)
	}
	m.Run()
}

func TestImagesHoldTheProgramAndNothingElse(t *testing.T) {
	for _, arch := range known() {
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

			holds := contents(t, img)
			if diff := cmp.Diff([]string{"etc/", "etc/ssl/", "etc/ssl/certs/", roots, program}, holds.names); diff != "" {
				t.Errorf("%s: what is in it (-want +got):\n%s", path, diff)
			}
			for _, header := range holds.headers {
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
			if info.Size() > largest || holds.size > largest {
				t.Errorf("%s has %d bytes, unpacked %d, want %d at most", path, info.Size(), holds.size, largest)
			}
			// A name that only the table of time zones has: the image has no other.
			if !bytes.Contains(holds.text[program], []byte("Antarctica/Troll")) {
				t.Errorf("%s: the program does not bring the time zones", path)
			}
			file, err := elf.NewFile(bytes.NewReader(holds.text[program]))
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
			if n := usable(t, holds.text[roots]); n < 100 {
				t.Errorf("%s: %d CA certificates, want 100 at least", path, n)
			}
		}
	}
}

// Another folder, another umask, another time: the same bytes.
func TestImagesAreTheSameWhereverTheyAreBuilt(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "a folder of another name")
	for _, part := range []string{"go.mod", "go.sum", "cmd", "internal", "pkg"} {
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
	t.Setenv("GOAMD64", "v3") // the builder's taste must not show
	t.Setenv("GOFLAGS", "-modfile=mine.mod")
	again, err := built(filepath.Join(t.TempDir(), "dist"), elsewhere, 0o077)
	if err != nil {
		t.Fatal(err)
	}
	here, there := sums(t, dist), sums(t, again)
	if diff := cmp.Diff(here, there); diff != "" {
		t.Errorf("files that differ (-here +there):\n%s", diff)
	}
	if len(here) < len(programs)*len(known()) {
		t.Errorf("only %d files compared", len(here))
	}
}

// What is pushed is what is loaded.
func TestTheIndexHoldsTheSameImages(t *testing.T) {
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
			t.Fatalf("%s: the layout names %d things, want the one index", program, n)
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
				t.Errorf("%s: the index says %q of an image, which tools drop", program, m.ArtifactType)
			}
			img, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			got, err := img.ConfigName()
			if err != nil {
				t.Fatal(err)
			}
			want, err := loaded(t, filepath.Join(dist, program+"-"+m.Platform.Architecture+".tar"), "localhost/errand/"+program+":1.2.3").ConfigName()
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%s for %s: the layout has %s, the archive %s", program, m.Platform.Architecture, got, want)
			}
		}
		if diff := cmp.Diff(known(), archs); diff != "" {
			t.Errorf("%s: architectures (-want +got):\n%s", program, diff)
		}
	}
}

func TestOtherProgramsArePackedUnderTheirName(t *testing.T) {
	for _, name := range []string{"nats:2.15.2", "localhost/pause:1", "example.com:5000/deep/er:v1"} {
		dist := t.TempDir()
		binary := static(t)
		img, err := pack(name, binary, nil, time.Unix(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := img.archive(dist, io.Discard); err != nil {
			t.Fatal(err)
		}
		written, err := filepath.Glob(filepath.Join(dist, "*.tar"))
		if err != nil || len(written) != 1 {
			t.Fatalf("%s: wrote %q, %v", name, written, err)
		}
		config, err := loaded(t, written[0], name).ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if want := []string{"/static"}; !slices.Equal(config.Config.Entrypoint, want) || config.Architecture != "arm64" {
			t.Errorf("%s: %s runs %q, want %q for arm64", name, config.Architecture, config.Config.Entrypoint, want)
		}
	}
}

func TestWhatCannotRunInAnImageIsRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{
		text:      "is no Linux program",
		"missing": "no such file",
	} {
		if _, err := pack("x:1", binary, nil, time.Unix(0, 0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", binary, err, want)
		}
	}
}

// A folder that is no earlier layout is not removed.
func TestNothingOfOthersIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "errand")
	mine := filepath.Join(dir, "mine")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(mine, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := layOut(dir, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "in the way") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}

// Those who build with docker or podman get the same.
func TestContainerfileSaysTheSame(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(source, "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"USER " + user, "WORKDIR /", "CGO_ENABLED=0", "-trimpath", "-buildvcs=false", "-tags=nodemo", `-ldflags="-s -w"`, "/" + roots}
	for key := range (&order{revision: revision}).labels("") {
		if !strings.HasSuffix(key, ".created") { // which the builder knows
			want = append(want, key+"=")
		}
	}
	for _, program := range programs {
		want = append(want, "FROM image AS "+program+"\n", "COPY --from=build /out/"+program+" /\n", `ENTRYPOINT ["/`+program+`"]`)
	}
	for _, part := range want {
		if !strings.Contains(string(text), part) {
			t.Errorf("Containerfile does not say %q", part)
		}
	}
}
