package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// built builds images, and returns their directory.
func built(dist, source string, umask int, archs ...string) (string, error) {
	before := syscall.Umask(umask)
	defer syscall.Umask(before)
	if err := os.Setenv("SOURCE_DATE_EPOCH", epoch); err != nil {
		return "", err
	}
	o := buildOrder{Source: source, Out: dist, Version: "1.2.3", Revision: revision, Arch: archs}
	return dist, o.Run()
}

// loaded returns the image in an archive, which must have exactly this tag.
func loaded(t *testing.T, path, tag string) v1.Image {
	t.Helper()
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	manifest, err := tarball.LoadManifest(open)
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{tag}) {
		t.Fatalf("%s contains %+v, want one image with the tag %s", path, manifest, tag)
	}
	img, err := tarball.Image(open, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

type imageContents struct {
	names   []string
	headers []*tar.Header
	text    map[string][]byte
	size    int64
}

func contents(t *testing.T, img v1.Image) imageContents {
	t.Helper()
	h := imageContents{text: map[string][]byte{}}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		for tr := tar.NewReader(r); ; {
			header, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			h.names, h.headers, h.text[header.Name] = append(h.names, header.Name), append(h.headers, header), text
			h.size += int64(len(text))
		}
	}
	return h
}

// usable counts the CA certificates in a file.
func usable(t *testing.T, file []byte) (n int) {
	t.Helper()
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if certificate.IsCA {
			n++
		}
	}
	return n
}

// sums returns a hash for each file in dir.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		file, err := os.Open(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		defer file.Close()
		hash, _, err := v1.SHA256(file)
		found[path] = hash.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
