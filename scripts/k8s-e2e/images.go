//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
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
		"--other", "nats:2.15.2="+filepath.Join(bin, "nats-server"), "--other", "localhost/pause:1="+pause)
	return dir, err
}

// listArchives returns the archives in dir for this architecture.
func listArchives(dir string) ([]string, error) {
	images, err := filepath.Glob(filepath.Join(dir, "*-"+runtime.GOARCH+".tar"))
	if err == nil && len(images) == 0 {
		err = fmt.Errorf("no images for %s in %s", runtime.GOARCH, dir)
	}
	return images, err
}
