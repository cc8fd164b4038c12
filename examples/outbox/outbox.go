// Package outbox publishes requests that belong to a transaction: Add inserts a request in the transaction that needs it, and Relay
// publishes what was committed. Copy it. Whatever is killed, and however many relays run, no request is lost and none is run twice: one
// that is published again has the same id.
package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"errand/pkg/errand"
	"errand/pkg/messages"
)

// Schema makes the table. Delete old rows that are published as you like: the ids are known for as long as errand keeps events.
const Schema = `CREATE TABLE IF NOT EXISTS outbox (
	id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	subject      text NOT NULL,
	msg_id       text NOT NULL,
	body         bytea NOT NULL,
	published_at timestamptz
);
CREATE INDEX IF NOT EXISTS outbox_waiting ON outbox (id) WHERE published_at IS NULL`

// DB is a pool, or a *pgx.Conn that nothing else uses: pgx may close it when ctx ends.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Add checks a request and inserts it. It is published when the transaction is committed, and never if it is not. The request
// needs a RequestID: it is what makes a repetition harmless.
func Add(ctx context.Context, tx pgx.Tx, r messages.Request) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	m, err := errand.NewMsg(r.Operation(), body)
	if err != nil {
		return err // a *messages.Invalid
	}
	id := m.Header.Get(nats.MsgIdHdr)
	if id == "" {
		return errors.New("outbox: the request needs a RequestID")
	}
	_, err = tx.Exec(ctx, `INSERT INTO outbox (subject, msg_id, body) VALUES ($1, $2, $3)`, m.Subject, id, m.Data)
	return err
}

// idle is how long Relay waits when nothing is there.
const idle = 200 * time.Millisecond

// Relay publishes what is committed until ctx ends, or an error: call it again after a moment.
func Relay(ctx context.Context, db DB, client *errand.Client) error {
	for {
		n, err := relay(ctx, db, client)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case n > 0:
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(idle):
		}
	}
}

// relay publishes a few requests and marks them. Other relays skip the rows that this one has locked. A row that the servers never
// take keeps no other one waiting.
func relay(ctx context.Context, db DB, client *errand.Client) (n int, err error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after a commit it does nothing
	type waiting struct {
		ID             int64
		Subject, MsgID string
		Body           []byte
	}
	rows, err := tx.Query(ctx, `SELECT id, subject, msg_id, body FROM outbox WHERE published_at IS NULL
		ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
	if err != nil {
		return 0, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[waiting])
	if err != nil || len(all) == 0 {
		return 0, err
	}
	step("read")
	var failed error
	for _, w := range all {
		m := &nats.Msg{Subject: w.Subject, Header: nats.Header{nats.MsgIdHdr: {w.MsgID}}, Data: w.Body}
		if _, err := client.PublishMsg(ctx, m); err != nil {
			failed = errors.Join(failed, fmt.Errorf("outbox: row %d: %w", w.ID, err))
			if errors.Is(err, errand.ErrTooLarge) || errors.Is(err, errand.ErrNotTaken) {
				continue
			}
			break
		}
		step("published")
		if _, err := tx.Exec(ctx, `UPDATE outbox SET published_at = now() WHERE id = $1`, w.ID); err != nil {
			return 0, err
		}
		step("marked")
	}
	err = tx.Commit(ctx)
	step("committed")
	return len(all), errors.Join(failed, err)
}

// step is where the test kills a relay.
var step = func(string) {}
