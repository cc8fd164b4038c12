//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets this binary be kubectl, under that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "kubectl" {
		os.Exit(m.Run())
	}
	if err := standInForKubectl(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// standInForKubectl knows the commands of remote. KUBECTL_HAS lists what the cluster has.
func standInForKubectl(args []string) error {
	if flags := "--kubeconfig file --context theirs "; !strings.HasPrefix(strings.Join(args, " ")+" ", flags) {
		return fmt.Errorf("called with %q, want %q first", args, flags)
	}
	switch args = args[4:]; {
	case args[0] == "get":
		for one := range strings.FieldsSeq(os.Getenv("KUBECTL_HAS")) {
			if one == args[1]+"/"+args[2] {
				fmt.Println(one)
			}
		}
		return nil
	case args[2] == "port-forward":
		here, there, _ := strings.Cut(args[4], ":")
		l, err := net.Listen("tcp", "127.0.0.1:"+here)
		if err != nil {
			return err
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			text, err := io.ReadAll(c)
			if err == nil && len(text) == 0 {
				continue // reach only looks whether it listens
			}
			_, err = fmt.Fprintf(c, "%s of %s", there, args[3])
			return errors.Join(err, c.Close(), errors.New("lost connection to pod"))
		}
	}
	return fmt.Errorf("unknown command %q", args)
}

// newRemote is a cluster behind the stand-in for kubectl.
func newRemote(t *testing.T, has, kill string) *remote {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "kubectl"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("KUBECTL_HAS", has)
	return &remote{theirs: theirs{Kubeconfig: "file", Context: "theirs", Kill: kill}}
}

func TestWhatAClusterLacksIsNotRun(t *testing.T) {
	const keda, kill = "customresourcedefinition/scaledobjects.keda.sh", "true"
	for _, c := range []struct {
		has, kill string
		want      []string
	}{
		{keda, kill, nil},
		{keda, "", []string{"kill", "pollers"}},
		{"", kill, []string{"deferred", "held", "scale"}},
	} {
		omitted, err := newRemote(t, c.has, c.kill).check(t.Context())
		if got := slices.Sorted(maps.Keys(omitted)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("with %q and --kill %q %v is not run, %v; want %v", c.has, c.kill, got, err, c.want)
		}
	}
}

func TestANamespaceThatIsThereIsLeftAlone(t *testing.T) {
	if _, err := newRemote(t, "namespace/errand", "true").check(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "has a namespace errand already") {
		t.Errorf("got %v, want an error that names the namespace", err)
	}
}

func TestAPortIsForwardedAgainAfterABreakAndUntilTheEnd(t *testing.T) {
	r := newRemote(t, "", "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	address, err := r.reach(ctx, "service/nats", 4222)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 { // the stand-in ends after each
		err := until(ctx, 30*time.Second, func(ctx context.Context) error {
			got, err := ask(ctx, address)
			if err == nil && got != "4222 of service/nats" {
				err = permanent{fmt.Errorf("got %q", got)}
			}
			return err
		})
		if err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
	}
	stop()
	r.forwards.Wait() // hangs if it does not end
	if got, err := ask(t.Context(), address); err == nil {
		t.Errorf("got %q after the end", got)
	}
}

// ask sends something to an address and returns the answer.
func ask(ctx context.Context, address string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err = c.Write([]byte("hello")); err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(c)
	if err == nil && len(text) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return string(text), err
}

func TestAContainerIsKilledByTheGivenCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "killed")
	r := newRemote(t, "", `test "$NODE $CONTAINER" = "worker abc" && touch `+file)
	var p pod
	p.Spec.NodeName = "worker"
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, struct {
		ContainerID  string
		RestartCount int
	}{ContainerID: "containerd://abc"})
	if err := r.kill9(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
