package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is an unprivileged user, the same as in minimal base images: a number, so that Kubernetes sees that it is not root.
const user = "65532:65532"

// roots is the first place where Go looks for CA certificates.
const roots = "etc/ssl/certs/ca-certificates.crt"

// image is one program for one architecture.
type image struct {
	v1.Image
	tag  name.Tag
	arch string
}

// pack makes an image that contains a static binary and no other program, with the licences of what it links.
func (o *buildOrder) pack(program, arch, binary string, notice []byte) (image, error) {
	tag, err := name.NewTag("localhost/errand/" + program + ":" + o.Version)
	if err != nil {
		return image{}, err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return image{}, err
	}
	content, err := files(program, text, notice)
	if err != nil {
		return image{}, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return image{}, err
	}
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if made, err = mutate.AppendLayers(made, layer); err != nil {
		return image{}, err
	}
	config, err := made.ConfigFile()
	if err != nil {
		return image{}, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: o.created}
	config.Config = v1.Config{User: user, WorkingDir: "/", Entrypoint: []string{"/" + program}, Labels: o.labels(program)}
	if made, err = mutate.ConfigFile(made, config); err != nil {
		return image{}, err
	}
	return image{Image: made, tag: tag, arch: arch}, nil
}

// files is the contents of an image as a tar: owned by root, writable by nobody else, and with a fixed time, so that a layer
// changes only when its contents do.
func files(program string, text, notice []byte) ([]byte, error) {
	certificates, err := certificates()
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(header tar.Header, text []byte) {
		header.Format, header.Size, header.ModTime = tar.FormatUSTAR, int64(len(text)), time.Unix(0, 0)
		err = errors.Join(err, w.WriteHeader(&header))
		_, failed := w.Write(text)
		err = errors.Join(err, failed)
	}
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: roots, Mode: 0o644}, certificates)
	add(tar.Header{Typeflag: tar.TypeReg, Name: "NOTICE", Mode: 0o644}, notice)
	add(tar.Header{Typeflag: tar.TypeReg, Name: program, Mode: 0o755}, text)
	return archive.Bytes(), errors.Join(err, w.Close())
}

// archive writes the image as a file that docker, podman and containerd can load.
func (i image) archive(dir string) error {
	program := filepath.Base(i.tag.RepositoryStr())
	path := filepath.Join(dir, program+"-"+i.arch+".tar")
	if err := tarball.WriteToFile(path, i.tag, i.Image); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	digest, err := i.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s  %s  %.1f MB  %s\n", i.tag, i.arch, float64(info.Size())/1e6, digest)
	return nil
}

// ArtifactType keeps a field out of the index: older tools drop it when they push, which would change the digest.
func (image) ArtifactType() (string, error) { return "", nil }

// writeLayout writes one index of all architectures as an OCI layout.
func writeLayout(dir string, images []image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, i := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: i,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: i.arch}}})
	}
	// A layout of an earlier run is removed; anything else with this name is not.
	if _, err := os.Stat(filepath.Join(dir, "oci-layout")); err == nil {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is in the way", dir)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": images[0].tag.TagStr()})
	if err := path.AppendIndex(index, name); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s  index  %s\n", images[0].tag, digest)
	return nil
}
