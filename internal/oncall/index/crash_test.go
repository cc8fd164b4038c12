package index

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"errand/internal/sandbox/devkit/devtest"
)

// childDir has this program be a process that follows the streams and nothing else, with
// the index in the directory that it names, until it is killed or its input ends.
const childDir, childURL = "INDEX_TEST_DIR", "INDEX_TEST_URL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := child(dir, os.Getenv(childURL)); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	devtest.Main(m)
}

// child says on its output how far it is, and once it has everything what that took.
func child(dir, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	x, err := Open(Options{Dir: dir, Log: zerolog.New(os.Stderr)})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		began, told := time.Now(), false
		for range time.Tick(time.Millisecond) {
			lag := x.Lag()
			var indexed uint64
			for _, p := range lag.Streams {
				indexed += p.Indexed
			}
			fmt.Println("indexed", indexed)
			if !told && !lag.Current.IsZero() {
				told = true
				var u syscall.Rusage
				_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
				status, _ := os.ReadFile("/proc/self/status") // Maxrss has what the parent had
				_, peak, _ := strings.Cut(string(status), "VmHWM:")
				peak, _, _ = strings.Cut(strings.TrimSpace(peak), "\n")
				fmt.Printf("current after %v, with %v of processor time, at most %s resident\n", time.Since(began).Round(time.Millisecond),
					(time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Round(time.Millisecond), peak)
			}
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	x.Follow(ctx, nc, js)
	return x.Close()
}

// process is a child.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *bufio.Scanner
}

func (in installation) process(dir string) *process {
	in.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, childURL+"="+in.nc.ConnectedUrl())
	cmd.Stderr = in.t.Output()
	if _, err := cmd.StdinPipe(); err != nil { // it ends with this process
		in.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		in.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &process{in.t, cmd, bufio.NewScanner(stdout)}
}

// says waits for a line that begins with something that is wanted.
func (p *process) says(wanted func(line string) bool) string {
	p.t.Helper()
	for p.output.Scan() {
		if line := p.output.Text(); wanted(line) {
			return line
		}
	}
	p.t.Fatal("it ended before")
	return ""
}

// current waits until the process has everything.
func (p *process) current() string {
	p.t.Helper()
	return p.says(func(line string) bool { return strings.HasPrefix(line, "current") })
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// Whatever a process had written when it was killed, another goes on from there: nothing is
// missing in the end, and nothing is counted twice.
func TestAProcessThatIsKilledLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	devtest.Full(t)
	in := provisioned(t)
	stored := in.many(10_000)
	dir := t.TempDir()
	for part := 1; part <= 4; part++ {
		p := in.process(dir)
		p.says(func(line string) bool {
			var indexed int
			_, err := fmt.Sscanf(line, "indexed %d", &indexed)
			return err == nil && indexed >= stored*part/5
		})
		p.kill()
	}
	p := in.process(dir)
	p.current()
	p.kill()
	key, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, keyFile), key, 0o600); err != nil { // names are hashed with it
		t.Fatal(err)
	}
	x, whole := in.open(dir), in.open(other)
	in.follow(whole)
	in.current(whole)
	for _, table := range []string{
		"SELECT id, operation, at, seq, began, attempt, http, dead FROM request ORDER BY 1, 2",
		"SELECT operation, state, reason, outcome, class, dead, requests FROM kind WHERE requests > 0 ORDER BY 1, 2, 3, 4, 5, 6",
		"SELECT state, reason, slot, events FROM tally JOIN kind USING (kind) ORDER BY 1, 2, 3",
		"SELECT hash, what, id FROM name JOIN request USING (n) ORDER BY 1, 2, 3",
		"SELECT stream, message.seq, hash, event, COALESCE(id, '') FROM message LEFT JOIN request USING (n) ORDER BY 1, 2, 3",
		"SELECT stream, seq, at FROM position ORDER BY 1",
	} {
		if diff := cmp.Diff(rowsAsText(t, whole, table), rowsAsText(t, x, table)); diff != "" {
			t.Errorf("%s: -made at once +made by five:\n%.2000s", table, diff)
		}
	}
}

// rowsAsText are the rows that a query returns, one a line.
func rowsAsText(t *testing.T, x *Index, question string) (lines []string) {
	t.Helper()
	rows, err := x.store.read.Query(question)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		row := make([]any, len(columns))
		to := make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(row...))
	}
	if err := rows.Err(); err != nil || len(lines) == 0 {
		t.Fatalf("%s: %d rows, %v", question, len(lines), err)
	}
	return lines
}
