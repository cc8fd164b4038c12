//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// archives packs the programs of this tree as images, with nats-server and the pause container, since no image is pulled
// from anywhere, and returns their directory.
func archives(ctx context.Context, root, bin, cache string) (string, error) {
	pause := filepath.Join(cache, "pause")
	_, err := goCommand(ctx, filepath.Join(root, directory), "build", "-trimpath", "-ldflags", "-s -w", "-o", pause, "./pause")
	if err != nil {
		return "", err
	}
	fmt.Println("packing images")
	dir := filepath.Join(cache, "images")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	_, err = goCommand(ctx, filepath.Join(root, "deploy/images"), "run", ".", "--arch", runtime.GOARCH, "--out", dir,
		"--other", "nats:"+newer+"="+filepath.Join(bin, "nats-server"), "--other", "localhost/pause:1="+pause)
	if err != nil {
		return "", err
	}
	before, err := install(ctx, cache, "github.com/nats-io/nats-server/v2@v"+older, "nats-server")
	if err != nil {
		return "", err
	}
	cli, err := install(ctx, cache, "github.com/nats-io/natscli/nats@v0.5.1", "nats")
	if err != nil {
		return "", err
	}
	return dir, errors.Join(
		writeImage(filepath.Join(dir, "nats-older-"+runtime.GOARCH+".tar"), "nats:"+older, "/bin/nats-server", []string{before}),
		writeImage(filepath.Join(dir, "nats-box-"+runtime.GOARCH+".tar"), "natsio/nats-box:0.19.2", "/bin/sh", []string{cli, "/bin/busybox"},
			"cat", "date", "ls", "mv", "rm", "sh", "sleep", "sort", "tail", "xargs"))
}

// install builds a program of another module with its own versions, and returns the binary.
func install(ctx context.Context, cache, pkg, name string) (string, error) {
	dir := filepath.Join(cache, "installed", filepath.Base(pkg))
	if !missing(dir, name) {
		return filepath.Join(dir, name), nil
	}
	fmt.Println("building", pkg)
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-modcacherw", "GOBIN="+dir)
	_, err := output(cmd)
	return filepath.Join(dir, name), err
}

// entry is a file of an archive, or a symbolic link.
type entry struct {
	name, link string
	text       []byte
}

// writeTar writes entries as a tar.
func writeTar(w io.Writer, entries []entry) error {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o755, Size: int64(len(e.text)), Linkname: e.link}
		if e.link != "" {
			header.Typeflag = tar.TypeSymlink
		}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(e.text); err != nil {
			return err
		}
	}
	return archive.Close()
}

// writeImage writes an image of these binaries as a file that containerd can load; applets are links to its busybox.
func writeImage(path, tag, entrypoint string, binaries []string, applets ...string) error {
	var files []entry
	for _, binary := range binaries {
		text, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		files = append(files, entry{name: "bin/" + filepath.Base(binary), text: text})
	}
	for _, applet := range applets {
		files = append(files, entry{name: "bin/" + applet, link: "busybox"})
	}
	var layer bytes.Buffer
	if err := writeTar(&layer, files); err != nil {
		return err
	}
	config := fmt.Appendf(nil, `{"os":"linux","architecture":%q,"config":{"Entrypoint":[%q],"Env":["PATH=/bin"]},
		"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, entrypoint, sha256.Sum256(layer.Bytes()))
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = writeTar(file, []entry{{name: "layer.tar", text: layer.Bytes()}, {name: "config.json", text: config},
		{name: "manifest.json", text: fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, tag)}})
	return errors.Join(err, file.Close())
}

// listArchives returns the archives in dir for this architecture.
func listArchives(dir string) ([]string, error) {
	images, err := filepath.Glob(filepath.Join(dir, "*-"+runtime.GOARCH+".tar"))
	if err == nil && len(images) == 0 {
		err = fmt.Errorf("no images for %s in %s", runtime.GOARCH, dir)
	}
	return images, err
}
