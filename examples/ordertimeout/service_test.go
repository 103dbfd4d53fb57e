package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/internal/testservers"
)

type world struct {
	t      *testing.T
	client *client
	db     *sql.DB
}

func newWorld(t *testing.T) *world {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := service{servers: servers{dsn: testservers.Database(t)}, address: "127.0.0.1:0", lease: time.Second}
	lines, ended := make(lineWriter, 1), make(chan error, 1)
	go func() { ended <- s.run(ctx, lines) }()
	var address string
	select {
	case line := <-lines:
		address = strings.TrimSpace(strings.TrimPrefix(line, greeting))
	case err := <-ended:
		require.NoError(t, err, "the service ended")
	}
	db, err := s.openDB()
	require.NoError(t, err)
	w := &world{t: t, client: newClient(func() string { return address }), db: db}
	t.Cleanup(func() {
		w.client.close()
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, db.Close())
	})
	return w
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

func (w *world) post(path string, body any) (int, order) {
	var o order
	status, err := w.client.post(w.t.Context(), path, body, &o)
	require.NoError(w.t, err)
	return status, o
}

func (w *world) get(id uint64, until func(order) bool) order {
	for {
		response, err := http.Get(fmt.Sprintf("http://%s/orders/%d", w.client.address(), id))
		require.NoError(w.t, err)
		var o order
		require.NoError(w.t, json.NewDecoder(response.Body).Decode(&o))
		require.NoError(w.t, response.Body.Close())
		if until(o) {
			return o
		}
		require.True(w.t, pause(w.t.Context(), 20*time.Millisecond))
	}
}

func TestSameKeyPlacesOneOrder(t *testing.T) {
	w := newWorld(t)
	wanted := newOrder{Key: "k1", SKU: "book", Quantity: 600, DeadlineMS: 60_000}
	status, first := w.post("/orders", wanted)
	require.Equal(t, http.StatusCreated, status)
	status, second := w.post("/orders", wanted) // Only 400 pieces are left in the stock.
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, first, second)
	wanted.Key = "k2"
	status, _ = w.post("/orders", wanted)
	require.Equal(t, http.StatusConflict, status, "sold out")
}

func TestUnpaidOrderIsClosedAndGivesItsStockBack(t *testing.T) {
	w := newWorld(t)
	wanted := newOrder{SKU: "book", Quantity: 1000, DeadlineMS: 300}
	status, first := w.post("/orders", wanted)
	require.Equal(t, http.StatusCreated, status)
	closed := w.get(first.ID, func(o order) bool { return o.State == stateClosed })
	require.False(t, closed.ClosedAt.Before(closed.DueAt), "closed at %v, due at %v", closed.ClosedAt, closed.DueAt)
	status, _ = w.post(fmt.Sprintf("/orders/%d/pay", first.ID), nil)
	require.Equal(t, http.StatusConflict, status, "too late to pay")
	status, _ = w.post("/orders", wanted)
	require.Equal(t, http.StatusCreated, status, "all pieces are back")
}

func TestPaidOrderStaysPaidAtItsDeadline(t *testing.T) {
	w := newWorld(t)
	_, paid := w.post("/orders", newOrder{SKU: "book", Quantity: 1, DeadlineMS: 400})
	_, unpaid := w.post("/orders", newOrder{SKU: "book", Quantity: 1, DeadlineMS: 800})
	path := fmt.Sprintf("/orders/%d/pay", paid.ID)
	status, _ := w.post(path, nil)
	require.Equal(t, http.StatusOK, status)
	status, again := w.post(path, nil)
	require.Equal(t, http.StatusOK, status, "paying twice is no error")
	require.Equal(t, statePaid, again.State)
	w.get(unpaid.ID, func(o order) bool { return o.State == stateClosed }) // The unpaid order is due after the paid one. So once it is closed, the time of the paid order has passed, too.
	require.Equal(t, statePaid, w.get(paid.ID, func(order) bool { return true }).State)
}

// No compensation has run for the dead close entry, so the order is still open.
// Failure: F73
func TestDeadClosingDoesNotPreventPayment(t *testing.T) {
	w := newWorld(t)
	_, placed := w.post("/orders", newOrder{SKU: "book", Quantity: 1, DeadlineMS: 600_000})
	_, err := w.db.Exec("UPDATE common_process_log SET state=-2, process_count=10, ended_by='exhausted' WHERE idempotent_id=?", string(closeKey(placed.ID)))
	require.NoError(t, err)
	status, paid := w.post(fmt.Sprintf("/orders/%d/pay", placed.ID), nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, statePaid, paid.State)
	var ended string
	require.NoError(t, w.db.QueryRow("SELECT CONCAT(state, ' ', ended_by) FROM common_process_log WHERE idempotent_id=?", string(closeKey(placed.ID))).Scan(&ended))
	require.Equal(t, "3 cancel", ended)
}

func TestSettledClosingPreventsPayment(t *testing.T) {
	w := newWorld(t)
	_, placed := w.post("/orders", newOrder{SKU: "book", Quantity: 1, DeadlineMS: 600_000})
	_, err := w.db.Exec("UPDATE common_process_log SET state=4, epoch=1, ended_by='person' WHERE idempotent_id=?", string(closeKey(placed.ID)))
	require.NoError(t, err)
	status, _ := w.post(fmt.Sprintf("/orders/%d/pay", placed.ID), nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, stateOpen, w.get(placed.ID, func(order) bool { return true }).State)
}

func TestBadRequestsAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, bad := range []newOrder{
		{SKU: "book", DeadlineMS: 1000},
		{SKU: "book", Quantity: 1},
		{SKU: "no such thing!", Quantity: 1, DeadlineMS: 1000},
		{Key: "a key", SKU: "book", Quantity: 1, DeadlineMS: 1000},
	} {
		status, _ := w.post("/orders", bad)
		require.Equal(t, http.StatusBadRequest, status, "%+v", bad)
	}
	status, _ := w.post("/orders/99/pay", nil)
	require.Equal(t, http.StatusNotFound, status)
	response, err := http.Get("http://" + w.client.address() + "/ready")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}
