package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	sqlite3 "modernc.org/sqlite/lib"

	"errand/internal/keyfile"
)

func TestAnIndexGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.started.a", body{})
	dir := t.TempDir()
	x := in.open(dir)
	stop := in.follow(x)
	in.current(x)
	stop()
	if _, err := Open(Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v, want %v", err, ErrInUse)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	in.store("mandate.enroll.failed.a", body{"reason": "refused"})
	x = in.open(dir)
	in.wantListed(x, Filter{}, "a started")
	if lag := x.Lag(); lag.Rebuilding != "" || len(lag.Streams) == 0 || !lag.Current.IsZero() {
		t.Errorf("opened again, it says %+v", lag)
	}
	in.follow(x)
	in.current(x)
	in.wantListed(x, Filter{}, "a failed")
	if counts, err := x.Counts(t.Context()); len(counts) != 1 || counts[0].Count != 1 || err != nil {
		t.Errorf("what there is: %+v, %v", counts, err)
	}
}

// openWith opens the file of an index with the index's key.
func openWith(dir string) (*store, error) {
	key, err := keyfile.Made(filepath.Join(dir, keyFile), keySize)
	if err != nil {
		return nil, err
	}
	return open(dir, newHasher(key).check())
}

func TestAFileOfNoUseIsMadeAgain(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	in.store("mandate.enroll.failed.a", body{"order_number": "DD1"})
	for what, spoil := range map[string]func(t *testing.T, dir string){
		"of another version": func(t *testing.T, dir string) {
			s, err := openWith(dir)
			if err == nil {
				_, err = s.write.Exec("PRAGMA user_version = 99")
			}
			if err != nil || s.close() != nil {
				t.Fatal(err)
			}
		},
		"with another key": func(t *testing.T, dir string) {
			s, err := openWith(dir)
			if err != nil || s.close() != nil || os.Remove(filepath.Join(dir, keyFile)) != nil {
				t.Fatal(err)
			}
		},
		"with other columns": func(t *testing.T, dir string) {
			s, err := openWith(dir)
			if err == nil {
				_, err = s.write.Exec("ALTER TABLE position RENAME COLUMN created TO greated")
			}
			if err != nil || s.close() != nil {
				t.Fatal(err)
			}
		},
		"no database": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Repeat("no database at all ", 1000)), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			spoil(t, dir)
			x, err := Open(Options{Dir: dir, Log: zerolog.Nop()})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if x.Lag().Rebuilding == "" {
				t.Error("it does not say that it is made again")
			}
			defer in.follow(x)()
			in.current(x)
			in.wantFound(x, "dd1", "a [order number]")
			if why := x.Lag().Rebuilding; why != "" {
				t.Errorf("it has caught up, and says %q", why)
			}
		})
	}
}

// A file that turns out to be broken, or is removed, while it is used.
func TestAFileThatBreaksIsMadeAgain(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(x *Index) error{
		"overwritten": func(x *Index) error {
			if _, err := x.store.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(x.Dir, file), []byte(strings.Repeat("no database at all ", 10_000)), 0o600)
		},
		"removed": func(x *Index) error { return remove(x.Dir) },
		"with other columns": func(x *Index) error {
			_, err := x.store.write.Exec("ALTER TABLE request RENAME COLUMN attempt TO attemqt")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			in := provisioned(t)
			in.store("mandate.enroll.failed.a", body{"order_number": "DD1"})
			dir := t.TempDir()
			x := in.open(dir)
			stop := in.follow(x)
			in.current(x)
			stop()
			if err := spoil(x); err != nil {
				t.Fatal(err)
			}
			in.store("mandate.enroll.failed.b", body{"order_number": "DD1"})
			in.follow(x)
			in.until(func() bool {
				known, err := in.find(x, "DD1") // it may be broken yet
				return len(known.Requests) == 2 && err == nil
			})
			if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
				t.Error(err)
			}
		})
	}
}

// What SQLite says at its limit is what it says when the disk is full.
func TestAFullDiskIsWaitedFor(t *testing.T) {
	t.Parallel()
	in := provisioned(t)
	x := in.open(t.TempDir())
	f := &follower{Index: x, nc: in.nc, js: in.js}
	defer f.leave()
	if err := f.round(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit := func(pages int) {
		if _, err := f.writer.conn.ExecContext(t.Context(), fmt.Sprint("PRAGMA max_page_count = ", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // as many as there are
	const n = 500
	for i := range n {
		in.store(fmt.Sprint("mandate.enroll.failed.a", i), body{"order_number": fmt.Sprint("DD", i), "reason": "refused"})
	}
	if err := f.round(t.Context()); code(err) != sqlite3.SQLITE_FULL || !strings.Contains(err.Error(), "no room") {
		t.Errorf("without room: %v", err)
	}
	in.wantListed(x, Filter{})
	limit(1 << 30)
	if err := f.round(t.Context()); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if counts, err := x.Counts(t.Context()); len(counts) != 1 || counts[0].Count != n || err != nil {
		t.Errorf("what there is: %+v, %v; want %d", counts, err, n)
	}
	in.wantFound(x, "dd499", "a499 [order number]")
}

func TestADirectoryMayBeNamedFromWhereTheProgramRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	x, err := Open(Options{Dir: "console-index"})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join("console-index", file)); err != nil {
		t.Error(err)
	}
}
