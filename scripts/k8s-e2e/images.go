//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// archives packs the programs of this tree, nats-server and the pause container as images, and returns their directory.
func archives(ctx context.Context, root, bin, cache string) (string, error) {
	fmt.Println("packing images")
	pause := filepath.Join(cache, "pause")
	if _, err := goCommand(ctx, root, "build", "-trimpath", "-ldflags", "-s -w", "-o", pause, "./scripts/k8s-e2e/pause"); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "images")
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	_, err := goCommand(ctx, filepath.Join(root, "deploy/images"), "run", ".", "--arch", runtime.GOARCH, "--out", dir,
		"--other", "nats:2.15.2="+filepath.Join(bin, "nats-server"), "--other", "localhost/pause:1="+pause)
	return dir, err
}
