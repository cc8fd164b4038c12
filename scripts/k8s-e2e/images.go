//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// archives packs the programs of this tree as images, and others (name=path of a program), and returns their directory.
func archives(ctx context.Context, root, cache, arch string, others ...string) (string, error) {
	fmt.Println("packing images")
	dir := filepath.Join(cache, "images")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	args := []string{"run", ".", "--arch", arch, "--out", dir}
	for _, other := range others {
		args = append(args, "--other", other)
	}
	_, err := goCommand(ctx, filepath.Join(root, "deploy/images"), args...)
	return dir, err
}

// localArchives are archives with nats-server and the pause container, since no image is pulled from anywhere.
func localArchives(ctx context.Context, root, bin, cache string) (string, error) {
	pause := filepath.Join(cache, "pause")
	_, err := goCommand(ctx, filepath.Join(root, directory), "build", "-trimpath", "-ldflags", "-s -w", "-o", pause, "./pause")
	if err != nil {
		return "", err
	}
	return archives(ctx, root, cache, runtime.GOARCH, "nats:2.15.2="+filepath.Join(bin, "nats-server"), "localhost/pause:1="+pause)
}

// listArchives returns the archives in dir for an architecture.
func listArchives(dir, arch string) ([]string, error) {
	images, err := filepath.Glob(filepath.Join(dir, "*-"+arch+".tar"))
	if err == nil && len(images) == 0 {
		err = fmt.Errorf("no images for %s in %s", arch, dir)
	}
	return images, err
}
