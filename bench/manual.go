package bench

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"sync/atomic"
	"time"
)

// The page query selects one state only. With an IN list of states the server would sort every due row for each page.
const (
	handPage = "SELECT id, version, content FROM common_process_log WHERE state=0 AND business_type=? AND next_at<=" + floorNow +
		" AND lease_until<=" + floorNow + " ORDER BY next_at LIMIT 20"
	handClaim = "UPDATE common_process_log SET version=version+1, lease_until=" + floorNow + "+30000, updated_at=UTC_TIMESTAMP(3) WHERE id=? AND state=0 AND version=?"
	handDone  = "UPDATE common_process_log SET state=1, version=version+1, lease_until=0, updated_at=UTC_TIMESTAMP(3) WHERE id=? AND version=?"
)

// handPause is how long the poller sleeps after an empty page.
const handPause = time.Second

// handPeer is the hand-written poller on compensator's table. It reads a page of due rows, then claims, handles and
// settles them one by one.
type handPeer struct {
	a       *arena
	db, own *sql.DB
	stop    func() // stops the poller that run started

	handler func(id string)
	settled atomic.Int64
}

func (a *arena) handWritten(name string) rival {
	return rival{name, func(handler func(string)) peer {
		return &handPeer{a: a, db: a.openPlain(producers), own: a.openPlain(1), stop: func() {}, handler: handler}
	}}
}

func (h *handPeer) record(ctx context.Context, n int, delay time.Duration) (string, time.Time, error) {
	began := time.Now()
	id, err := floorRecord(ctx, h.db, n, floorTuple, delay)
	from := time.Now()
	if delay > 0 {
		from = began.Add(delay)
	}
	return strconv.FormatInt(id, 10), from, err
}

func (h *handPeer) backlog(n int) {
	h.a.Helper()
	for left := n; left > 0; left -= floorBatch {
		_, _, err := h.record(h.a.Context(), min(left, floorBatch), 0)
		h.a.must(err)
	}
}

func (h *handPeer) run() {
	ctx, cancel := context.WithCancel(h.a.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.poll(ctx) }()
	h.stop = func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			h.a.must(err)
		}
	}
}

func (h *handPeer) poll(ctx context.Context) error {
	for {
		page, err := h.page(ctx)
		if err != nil {
			return err
		}
		for _, row := range page {
			if err := h.process(ctx, row); err != nil {
				return err
			}
		}
		if len(page) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(handPause):
		}
	}
}

type handRow struct {
	id, version int64
	content     []byte
}

func (h *handPeer) page(ctx context.Context) ([]handRow, error) {
	rows, err := h.own.QueryContext(ctx, handPage, benchType)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var page []handRow
	for rows.Next() {
		var row handRow
		if err := rows.Scan(&row.id, &row.version, &row.content); err != nil {
			return nil, err
		}
		page = append(page, row)
	}
	return page, rows.Err()
}

// process skips a row that another poller has claimed.
func (h *handPeer) process(ctx context.Context, row handRow) error {
	res, err := h.own.ExecContext(ctx, handClaim, row.id, row.version)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return err
	}
	h.handler(strconv.FormatInt(row.id, 10))
	if _, err := h.own.ExecContext(ctx, handDone, row.id, row.version+1); err != nil {
		return err
	}
	h.settled.Add(1)
	return nil
}

func (h *handPeer) finished(int) int { return int(h.settled.Load()) }

func (h *handPeer) close() {
	h.a.Helper()
	h.stop()
	h.a.must(h.own.Close())
	h.a.must(h.db.Close())
}
