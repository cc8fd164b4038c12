package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// thisMachine says when and where something was measured, and with which versions.
func thisMachine(ctx context.Context) (string, error) {
	commit, err := output(ctx, "git", "describe", "--always", "--dirty")
	if err != nil {
		commit = "unknown" // not a clone
	}
	return fmt.Sprintf("%s, %d cores (%s), %s/%s, %s, nats-server %s, errand %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		cpuModel(), runtime.GOOS, runtime.GOARCH, strings.Replace(runtime.Version(), "go", "Go ", 1),
		version("github.com/nats-io/nats-server/v2"), commit), nil
}

// cpuModel is the processor's name where the system names it.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere there is none
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "unknown processor"
}

// version returns the version of a module in this program.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == module {
			return strings.TrimPrefix(dep.Version, "v")
		}
	}
	return "unknown"
}

// save replaces a section of docs/why/performance.md: what is between its two marks.
func save(root, section, text string) error {
	file := filepath.Join(root, "docs", "why", "performance.md")
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	replaced, err := replace(string(page), section, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(replaced), 0o644)
}

func replace(page, section, text string) (string, error) {
	begin, end := "<!-- bench "+section+" -->\n", "<!-- end of bench "+section+" -->\n"
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("no section between %q and %q", begin, end)
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}
