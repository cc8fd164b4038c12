package index

import (
	"context"
	"crypto/hmac"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"modernc.org/sqlite" // also registers the driver
	sqlite3 "modernc.org/sqlite/lib"
)

// version is the version of the tables and of what is put into them: a file with another one is
// thrown away.
const version = 10

// schema is small on purpose: what requests have in common is a kind, of which there are
// some dozens, so that one index serves every filter, and counting is reading a few rows.
const schema = `
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE position (stream TEXT PRIMARY KEY, created INTEGER, seq INTEGER, at INTEGER) WITHOUT ROWID;
CREATE TABLE kind (
	kind INTEGER PRIMARY KEY, operation TEXT, state TEXT, reason TEXT, outcome TEXT, class TEXT, dead INTEGER, seen INTEGER,
	requests INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE request (
	n INTEGER PRIMARY KEY, id TEXT, operation TEXT, kind INTEGER, at INTEGER, seq INTEGER, began INTEGER, attempt INTEGER,
	http INTEGER, dead INTEGER, ended INTEGER, seen INTEGER
);
CREATE UNIQUE INDEX request_id ON request (id, operation);
CREATE INDEX request_kind ON request (kind, at);
CREATE INDEX request_dead ON request (dead) WHERE dead > 0;
CREATE TABLE name (hash INTEGER, what INTEGER, n INTEGER, PRIMARY KEY (hash, what, n)) WITHOUT ROWID;
CREATE TABLE message (stream INTEGER, seq INTEGER, hash INTEGER, event INTEGER, n INTEGER, PRIMARY KEY (stream, seq, hash)) WITHOUT ROWID;
CREATE INDEX message_hash ON message (hash);
CREATE TABLE tally (slot INTEGER, kind INTEGER, events INTEGER, PRIMARY KEY (slot, kind)) WITHOUT ROWID;
CREATE TABLE secret (id TEXT PRIMARY KEY) WITHOUT ROWID;
`

// store is an open file. It has one connection that writes, and some that read.
type store struct {
	write, read *sql.DB
	file        os.FileInfo
}

// file is the database within the directory of an index. SQLite has others beside it whose
// names begin with it.
const file = "index.db"

// open opens the file, and makes it where there is none. errUnusable: it has to be made
// again.
func open(dir string, check []byte) (*store, error) {
	dsn := func(more ...string) string {
		q := url.Values{"_pragma": append([]string{"journal_mode(WAL)", "synchronous(NORMAL)", "busy_timeout(10000)"}, more...)}
		return (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(filepath.Join(dir, file)), RawQuery: q.Encode()}).String()
	}
	// The pages that change are written to the file once in a while and not after each
	// transaction: most change again with the next one.
	write, err := sql.Open("sqlite", dsn("secure_delete(1)", "cache_size(-65536)", "wal_autocheckpoint(8192)", "journal_size_limit(67108864)"))
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	write.SetMaxOpenConns(1)
	read, err := sql.Open("sqlite", dsn("query_only(1)", "cache_size(-4096)")+"&mode=rw") // never made by a question
	if err != nil {
		return nil, errors.Join(fmt.Errorf("index: %w", err), write.Close())
	}
	read.SetMaxOpenConns(4)
	read.SetMaxIdleConns(4)
	s := &store{write: write, read: read}
	if err = s.prepare(check); err == nil {
		s.file, err = os.Stat(filepath.Join(dir, file))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("index: %w", err), s.close())
	}
	return s, nil
}

// errUnusable says that a file is of no use: another version or key made it.
var errUnusable = errors.New("its file was made by another version, or with another key")

// prepare makes the tables where there are none, and looks whether they are ours.
func (s *store) prepare(check []byte) error {
	ctx := context.Background() // a file is opened whole or not
	var have int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if have == 0 {
		_, err := s.write.ExecContext(ctx, "BEGIN IMMEDIATE;"+schema+"INSERT INTO meta VALUES ('rebuilding', 'it is new'), ('check', ?);"+
			fmt.Sprintf("PRAGMA user_version = %d; COMMIT", version), check)
		return err
	}
	var made []byte
	err := s.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE name = 'check'").Scan(&made)
	if have != version || err == nil && !hmac.Equal(made, check) {
		return errUnusable
	}
	return err
}

func (s *store) close() error { return errors.Join(s.read.Close(), s.write.Close()) }

func remove(dir string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(filepath.Join(dir, file+suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("index: %w", err))
		}
	}
	return errors.Join(errs...)
}

// damaged reports whether err says that the file is not a database, or a broken one. What we ask
// for is the same always: where it cannot be asked for, the tables are no longer ours.
func damaged(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_CORRUPT || c == sqlite3.SQLITE_NOTADB || c == sqlite3.SQLITE_ERROR
}

// code is the code of SQLite's error, without what it adds to it; 0 for any other error.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func (s *store) state(l *lag) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Streams, l.Rebuilding, l.Current = nil, "", time.Time{}
	err := s.write.QueryRowContext(background, "SELECT value FROM meta WHERE name = 'rebuilding'").Scan(&l.Rebuilding)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("index: %w", err)
	}
	rows, err := s.write.QueryContext(background, "SELECT stream, created, seq, at FROM position")
	return each(rows, err, func() error {
		var p Position
		var created, at int64
		err := rows.Scan(&p.Stream, &created, &p.Indexed, &at)
		p.Created, p.At, p.Last = time.Unix(0, created).UTC(), time.Unix(0, at).UTC(), p.Indexed
		l.Streams = append(l.Streams, p)
		return err
	})
}

// each calls read for each of the rows that were asked for, and closes them.
func each(rows *sql.Rows, err error, read func() error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err says it all
	for rows.Next() {
		if err := read(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// lockDir takes a directory for this process, as long as it runs: the system releases the
// lock of one that is killed. Errors: ErrInUse.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("index: %s: %w", dir, err), f.Close())
	}
	return f, nil
}
