package check

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
)

// bin holds the programs, built once.
var bin string

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "errand-check"); err == nil {
		build := exec.Command("go", "build", "-o", bin+"/", "./cmd/...")
		build.Dir, build.Stderr = "../../..", os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the programs:", err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(bin)
	os.Exit(code)
}

// program is the command that a container runs, as its --help is asked: `errand provision`.
// Empty means that the container is not ours.
func program(c *corev1.Container) []string {
	repository, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(c.Image, "localhost/"), "REGISTRY/"), "@")
	repository, _, _ = strings.Cut(repository, ":")
	name, ours := strings.CutPrefix(repository, "errand/")
	switch {
	case !ours:
		return nil
	case name == "errand" && len(c.Args) > 0:
		return []string{name, c.Args[0]}
	}
	return []string{name}
}

var (
	helpMu sync.Mutex
	helps  = map[string]map[string]bool{}
	envs   = regexp.MustCompile(`\(\s*\$([A-Z0-9_]+)\)`)
)

// settings are the variables that a program knows, by its --help.
func settings(command []string) (map[string]bool, error) {
	helpMu.Lock()
	defer helpMu.Unlock()
	key := strings.Join(command, " ")
	if known, ok := helps[key]; ok {
		return known, nil
	}
	text, err := exec.Command(filepath.Join(bin, command[0]), append(command[1:], "--help")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", key, err)
	}
	known := map[string]bool{}
	for _, m := range envs.FindAllSubmatch(text, -1) {
		known[string(m[1])] = true
	}
	if !known["NATS_URL"] && command[len(command)-1] != "sandbox" {
		return nil, fmt.Errorf("%s --help names no NATS_URL: is it read rightly?", key)
	}
	helps[key] = known
	return known, nil
}

// knownSettings: a name that the program does not know is a setting that is not made.
func knownSettings(s *set, say complain) {
	for _, p := range s.pods() {
		command := program(p.container())
		if command == nil {
			continue
		}
		known, err := settings(command)
		if err != nil {
			say("%v", err)
			continue
		}
		for name := range s.environment(p, func(string, ...any) {}) {
			if !known[name] && name != "GOMEMLIMIT" {
				say("%s: %s knows no %s", p, strings.Join(command, " "), name)
			}
		}
	}
}

// TestTheProgramsTakeEveryValue starts each container's command with the environment and the
// files that it would have, and a NATS that is not there.
func TestTheProgramsTakeEveryValue(t *testing.T) {
	for name, s := range map[string]*set{
		"sandbox":    render(t, "overlays/sandbox", "components/console"),
		"production": forSite(t, render(t, "overlays/production", "components/console", "components/console-login")),
	} {
		for _, p := range s.pods() {
			t.Run(name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				if err := taken(t, s, p); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestAValueThatIsNotTakenIsNoticed breaks what the test above must see.
func TestAValueThatIsNotTakenIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		pod, variable, value, want string
	}{
		"no duration":      {"mail-consumer", "UPSTREAM_TIMEOUT", "30", "--upstream-timeout"},
		"no such level":    {"log-poller", "LOG_LEVEL", "loud", "LOG_LEVEL"},
		"plain http":       {"mandate-consumer", "ALLOW_PLAIN_HTTP", "false", "MANDATE_API_URL"},
		"no file there":    {"mail-consumer", "MAIL_API_KEY_FILE", "/etc/errand/key", "MAIL_API_KEY_FILE"},
		"no NATS password": {"mail-consumer", "NATS_PASSWORD_FILE", "/etc/errand/password", "NATS_PASSWORD_FILE"},
		"two copies":       {"errand-provision", "PROVISION_REPLICAS", "2", "replicas"},
		"no URL":           {"sandbox", "SANDBOX_PUBLIC_URL", "here", "SANDBOX_PUBLIC_URL"},
		"no login":         {"console", "CONSOLE_ADDR", ":8088", "CONSOLE_ADDR"},
		"no such role":     {"console", "CONSOLE_ROLES", "write", "CONSOLE_ROLES"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := render(t, "overlays/sandbox", "components/console")
			p := s.pod(c.pod)
			p.container().Env = append(p.container().Env, corev1.EnvVar{Name: c.variable, Value: c.value})
			if err := taken(t, s, p); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s=%s: %v, want a complaint about %s", c.variable, c.value, err, c.want)
			}
		})
	}
}

// taken runs what p's container would run until it is clear that the configuration was accepted.
func taken(t *testing.T, s *set, p pod) error {
	command := program(p.container())
	if command == nil {
		return natsTakes(t, s, p)
	}
	dir, free := t.TempDir(), unused(t)
	env := []string{"PATH=/nowhere", "ADMIN_ADDR=" + free}
	for name, value := range s.environment(p, t.Errorf) {
		for _, mount := range p.container().VolumeMounts {
			if rest, below := strings.CutPrefix(value, mount.MountPath+"/"); below {
				value = filepath.Join(dir, mount.Name, rest)
			}
		}
		if name == "CONSOLE_ADDR" { // others may have the port
			value = strings.TrimSuffix(value, "8088") + "0"
		}
		if name == "NATS_URL" {
			at, err := url.Parse(value)
			if err != nil {
				return err
			}
			at.Host = "127.0.0.1:1" // nobody
			value = at.String()
		}
		env = append(env, name+"="+value)
	}
	for volume, files := range s.files(p, t.Errorf) {
		if err := os.MkdirAll(filepath.Join(dir, volume), 0o700); err != nil {
			return err
		}
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, volume, name), content, 0o600); err != nil {
				return err
			}
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	args := make([]string, 0, len(p.container().Args))
	for _, arg := range p.container().Args {
		if arg == ":8085" {
			arg = free
		}
		args = append(args, arg)
	}
	run := exec.CommandContext(ctx, filepath.Join(bin, command[0]), args...)
	var said bytes.Buffer
	run.Env, run.Stderr, run.Stdout = env, &said, &said
	if err := run.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	ask := time.NewTicker(50 * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case err := <-ended:
			if command[len(command)-1] == "provision" && strings.Contains(said.String(), "no NATS server at") {
				return nil
			}
			return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), errors.Join(err, ctx.Err()), said.String())
		case <-ask.C:
		}
		if up(ctx, free, command) {
			if err := run.Process.Signal(syscall.SIGTERM); err != nil {
				return err
			}
			if err := <-ended; err != nil {
				return fmt.Errorf("%s, asked to end: %w\n%s", strings.Join(command, " "), err, said.String())
			}
			return nil
		}
	}
}

// up says whether a program got as far as asking for NATS, and the sandbox as far as serving.
func up(ctx context.Context, address string, command []string) bool {
	path, want := "/readyz", "not connected to NATS"
	if command[len(command)-1] == "sandbox" {
		path, want = "/_sandbox/help", "oracle"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return err == nil && strings.Contains(string(body), want)
}

// natsTakes has nats-server read its configuration, with the passwords of its environment.
func natsTakes(t *testing.T, s *set, p pod) error {
	dir := t.TempDir()
	for name, value := range s.environment(p, t.Errorf) {
		if !strings.HasSuffix(name, "_PASSWORD") {
			continue
		}
		if err := os.Setenv(name, value); err != nil { // the server reads no other; nobody else here does
			return err
		}
	}
	for name, content := range s.files(p, t.Errorf)["config"] {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	_, err := server.ProcessConfigFile(filepath.Join(dir, "nats.conf"))
	return err
}

func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// authority is a certificate such as a site has in its ConfigMap nats-ca.
func authority(t *testing.T) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}
