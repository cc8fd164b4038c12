package outbox

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"errand/pkg/errand"
	"errand/pkg/errandtest"
	"errand/pkg/messages"
)

// A relay that is to be killed is this program, started again.
func TestMain(m *testing.M) {
	if at := os.Getenv("KILL_AT"); at != "" {
		log.Fatal(relayUntil(at))
	}
	os.Exit(m.Run())
}

// A relay's process is killed at each step, for the first and the second row of three. What was committed is sent once, what was not never.
func TestWhateverIsKilledNothingIsLostAndNothingIsSentTwice(t *testing.T) {
	url := postgres(t)
	w := errandtest.New(t)
	db := connect(t, url)
	_, err := db.Exec(t.Context(), Schema)
	must(t, err)
	killed := 0
	for _, name := range []string{"read", "published", "marked", "committed"} {
		for _, after := range []int{1, 2} {
			if after == 2 && (name == "read" || name == "committed") {
				continue
			}
			killed++
			var addresses []string
			for i := range 3 {
				address := fmt.Sprintf("%s-%d-%d@example.com", name, after, i)
				addresses = append(addresses, address)
				add(t, db, address, true)
			}
			add(t, db, "never@example.com", false)

			first := exec.CommandContext(t.Context(), os.Args[0])
			first.Env = append(os.Environ(), "KILL_AT="+name, "KILL_AFTER="+strconv.Itoa(after), "POSTGRES="+url, "NATS_URL="+w.URL())
			out, err := first.CombinedOutput()
			if how, ok := first.ProcessState.Sys().(syscall.WaitStatus); !ok || how.Signal() != syscall.SIGKILL {
				t.Fatalf("%s: the relay was not killed: %v\n%s", name, err, out)
			}
			second, want, n := connect(t, url), 3, 0
			if name == "committed" {
				want = 0
			}
			for end := time.Now().Add(10 * time.Second); n < want && time.Now().Before(end); { // until PostgreSQL misses the first
				n, err = relay(t.Context(), second, w.Client)
				must(t, err)
			}
			if n != want {
				t.Errorf("%s: %d rows waited, want %d", name, n, want)
			}
			for _, address := range addresses {
				w.WantEvent("mail.send.accepted." + id(address))
			}
			for _, address := range addresses {
				w.Mail.WantOnce(address)
			}
		}
	}
	w.Mail.WantNone("never@example.com")
	var waiting, all int
	must(t, db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE published_at IS NULL), count(*) FROM outbox`).Scan(&waiting, &all))
	if waiting != 0 || all != 3*killed {
		t.Errorf("%d of %d rows wait, want 0 of %d", waiting, all, 3*killed)
	}
}

func TestRelaysShareTheRowsAndARequestNeedsAnId(t *testing.T) {
	url := postgres(t)
	w := errandtest.New(t)
	db := connect(t, url)
	_, err := db.Exec(t.Context(), Schema)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for range 2 {
		relay := connect(t, url)
		go func() { ended <- Relay(ctx, relay, w.Client) }()
	}
	for i := range 20 {
		add(t, db, fmt.Sprintf("n%d@example.com", i), true)
	}
	for i := range 20 {
		w.WantEvent("mail.send.accepted." + id(fmt.Sprintf("n%d@example.com", i)))
		w.Mail.WantOnce(fmt.Sprintf("n%d@example.com", i))
	}
	stop()
	for _, err := range []error{<-ended, <-ended, Relay(ctx, connect(t, url), w.Client)} { // the last one with a context that has ended
		must(t, err)
	}
	tx, err := db.Begin(t.Context())
	must(t, err)
	if err := Add(t.Context(), tx, messages.AccountRequest{}); err == nil || !strings.Contains(err.Error(), "RequestID") {
		t.Errorf("without an id: %v", err)
	}
	must(t, Add(t.Context(), tx, messages.SendRequest{RequestID: "large", To: messages.Recipients("ann@example.com"), Subject: "Hello",
		Content: strings.Repeat("…", 1<<20)}))
	must(t, tx.Commit(t.Context()))
	add(t, db, "after@example.com", true)
	if err := Relay(t.Context(), db, w.Client); !errors.Is(err, errand.ErrTooLarge) || !strings.Contains(err.Error(), "row 2") {
		t.Errorf("a row that is too large: %v", err)
	}
	w.WantEvent("mail.send.accepted." + id("after@example.com"))
}

func id(address string) string {
	return "hello-" + strings.NewReplacer("@", "-", ".", "-").Replace(address)
}

// add inserts a request, in a transaction that is committed or not.
func add(t *testing.T, db *pgx.Conn, address string, commit bool) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	must(t, err)
	must(t, Add(t.Context(), tx,
		messages.SendRequest{RequestID: id(address), To: messages.Recipients(address), Subject: "Hello", Content: "…"}))
	if commit {
		must(t, tx.Commit(t.Context()))
	} else {
		must(t, tx.Rollback(t.Context()))
	}
}

// relayUntil relays until it comes to the step where it is killed, for the nth time.
func relayUntil(at string) error {
	n, err := strconv.Atoi(os.Getenv("KILL_AFTER"))
	if err != nil {
		return err
	}
	step = func(name string) {
		if name == at {
			if n--; n == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	db, err := pgx.Connect(context.Background(), os.Getenv("POSTGRES"))
	if err != nil {
		return err
	}
	nc, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	_, err = relay(context.Background(), db, errand.New(js))
	return err
}

// postgres starts a server on a free port of this machine, which is stopped when the test ends.
func postgres(t *testing.T) (url string) {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(bins) == 0 {
		t.Fatal("there is no PostgreSQL: apt-get install postgresql")
	}
	bin := filepath.Dir(slices.Max(bins))
	base := ""
	if os.Getuid() == 0 { // another user must reach it
		base = "/var/tmp"
	}
	dir, err := os.MkdirTemp(base, "outbox-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var as *syscall.SysProcAttr // it refuses to run as root
	if os.Getuid() == 0 {
		owner, err := user.Lookup("postgres")
		must(t, err)
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		must(t, os.Chown(dir, uid, gid))
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	data := filepath.Join(dir, "data")
	out, err := command("initdb", "-D", data, "-U", "test", "-A", "trust", "--no-sync").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	server := command("postgres", "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", dir)
	must(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
	})
	url = fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", port)
	for end := time.Now().Add(time.Minute); ; {
		db, err := pgx.Connect(t.Context(), url)
		if err == nil {
			_ = db.Close(t.Context())
			return url
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
