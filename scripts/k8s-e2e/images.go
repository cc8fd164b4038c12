//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// archives packs the programs of this tree as images, with nats-server and the pause container, since no image is pulled
// from anywhere, and returns their directory.
func archives(ctx context.Context, root, bin, cache string) string {
	pause, dir := filepath.Join(cache, "pause"), filepath.Join(cache, "images")
	get(goCommand(ctx, filepath.Join(root, directory), "build", "-trimpath", "-ldflags", "-s -w", "-o", pause, "./pause"))
	fmt.Println("packing images")
	must(os.RemoveAll(dir))
	get(goCommand(ctx, filepath.Join(root, "deploy/images"), "run", ".", "--arch", runtime.GOARCH, "--out", dir))
	write := func(name, tag, entrypoint string, binaries []string, applets ...string) {
		writeImage(filepath.Join(dir, name+"-"+runtime.GOARCH+".tar"), tag, "/bin/"+entrypoint, binaries, applets...)
	}
	write("pause", "localhost/pause:1", "pause", []string{pause})
	write("nats", "nats:"+newer, "nats-server", []string{filepath.Join(bin, "nats-server")})
	write("nats-older", "nats:"+older, "nats-server",
		[]string{install(ctx, cache, "github.com/nats-io/nats-server/v2@v"+older, "nats-server")})
	write("nats-box", "natsio/nats-box:0.19.2", "sh",
		[]string{install(ctx, cache, "github.com/nats-io/natscli/nats@v0.5.1", "nats"), "/bin/busybox"},
		"cat", "date", "ls", "mv", "rm", "sh", "sleep", "sort", "tail", "xargs")
	return dir
}

// install builds a program of another module with its own versions, and returns the binary.
func install(ctx context.Context, cache, pkg, name string) string {
	dir := filepath.Join(cache, "installed", filepath.Base(pkg))
	if missing(dir, name) {
		fmt.Println("building", pkg)
		cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-modcacherw", "GOBIN="+dir)
		get(output(cmd))
	}
	return filepath.Join(dir, name)
}

// entry is a file of an archive, or a symbolic link.
type entry struct {
	name, link string
	text       []byte
}

// writeTar writes entries as a tar.
func writeTar(w io.Writer, entries []entry) {
	archive := tar.NewWriter(w)
	for _, e := range entries {
		header := tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o755, Size: int64(len(e.text)), Linkname: e.link}
		if e.link != "" {
			header.Typeflag = tar.TypeSymlink
		}
		must(archive.WriteHeader(&header))
		get(archive.Write(e.text))
	}
	must(archive.Close())
}

// writeImage writes an image of these binaries as a file that containerd can load; applets are links to its busybox.
func writeImage(path, tag, entrypoint string, binaries []string, applets ...string) {
	var files []entry
	for _, binary := range binaries {
		files = append(files, entry{name: "bin/" + filepath.Base(binary), text: get(os.ReadFile(binary))})
	}
	for _, applet := range applets {
		files = append(files, entry{name: "bin/" + applet, link: "busybox"})
	}
	var layer bytes.Buffer
	writeTar(&layer, files)
	config := fmt.Appendf(nil, `{"os":"linux","architecture":%q,"config":{"Entrypoint":[%q],"Env":["PATH=/bin"]},
		"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, runtime.GOARCH, entrypoint, sha256.Sum256(layer.Bytes()))
	file := get(os.Create(path))
	writeTar(file, []entry{{name: "layer.tar", text: layer.Bytes()}, {name: "config.json", text: config},
		{name: "manifest.json", text: fmt.Appendf(nil, `[{"Config":"config.json","RepoTags":[%q],"Layers":["layer.tar"]}]`, tag)}})
	must(file.Close())
}

// listArchives returns the archives in dir for this architecture.
func listArchives(dir string) []string {
	images := get(filepath.Glob(filepath.Join(dir, "*-"+runtime.GOARCH+".tar")))
	if len(images) == 0 {
		must(fmt.Errorf("no images for %s in %s", runtime.GOARCH, dir))
	}
	return images
}
