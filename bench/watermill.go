package bench

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// By default the payload column of watermill-sql is JSON, which MariaDB would validate, so it is a MEDIUMBLOB here. An
// empty table is read again after 10 ms instead of 1 s, because the last messages of a run would wait for the poll. A
// page has the default of 100 messages.
var (
	watermillSchema  = watermillsql.DefaultMySQLSchema{GeneratePayloadType: func(string) string { return "MEDIUMBLOB" }}
	watermillOffsets = watermillsql.DefaultMySQLOffsetsAdapter{}
	watermillReader  = watermillsql.SubscriberConfig{
		ConsumerGroup: "bench", PollInterval: 10 * time.Millisecond, SchemaAdapter: watermillSchema, OffsetsAdapter: watermillOffsets,
	}
)

// watermillPeer has one subscriber, because a second one in the group would only wait. If transactions publish at the
// same time, a message may stay unread forever. A transaction gets its offset before its row is visible, so the group's
// offset can move past the row.
type watermillPeer struct {
	a       *arena
	db, own *sql.DB
	reader  *watermillsql.Subscriber
	stop    func() // stops what run started

	handler func(id string)
	handled atomic.Int64
}

func (a *arena) watermill(name string) rival {
	return rival{name, func(handler func(string)) peer {
		w := &watermillPeer{a: a, db: a.openPlain(producers), own: a.openPlain(2), stop: func() {}, handler: handler}
		var err error
		w.reader, err = watermillsql.NewSubscriber(w.own, watermillReader, nil)
		a.must(err)
		return w
	}}
}

func (w *watermillPeer) record(ctx context.Context, n int, _ time.Duration) (string, time.Time, error) {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return "", time.Time{}, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, floorOrder, int64(1), int64(100), note); err != nil {
		return "", time.Time{}, err
	}
	id, err := watermillPublish(tx, n)
	if err != nil {
		return "", time.Time{}, err
	}
	err = tx.Commit()
	return id, time.Now(), err
}

// watermillPublish creates a publisher for this transaction, as watermill's documentation shows.
func watermillPublish(tx *sql.Tx, n int) (last string, err error) {
	publisher, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema}, nil)
	if err != nil {
		return "", err
	}
	messages := make([]*message.Message, n)
	for i := range messages {
		last = watermill.NewUUID()
		messages[i] = message.NewMessage(last, content)
	}
	return last, publisher.Publish(benchType, messages...)
}

func (w *watermillPeer) backlog(n int) {
	w.a.Helper()
	for left := n; left > 0; left -= floorBatch {
		_, _, err := w.record(w.a.Context(), min(left, floorBatch), 0)
		w.a.must(err)
	}
}

func (w *watermillPeer) run() {
	w.a.Helper()
	messages, err := w.reader.Subscribe(w.a.Context(), benchType)
	w.a.must(err)
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for m := range messages {
			w.handler(m.UUID)
			w.handled.Add(1)
			m.Ack()
		}
	}()
	w.stop = func() {
		w.a.must(w.reader.Close())
		<-handled
	}
}

// After the last message, finished also checks that the last page's offset is committed.
func (w *watermillPeer) finished(n int) int {
	w.a.Helper()
	handled := int(w.handled.Load())
	if handled < n {
		return handled
	}
	var last, acked int
	w.a.must(w.own.QueryRowContext(w.a.Context(), "SELECT (SELECT MAX(`offset`) FROM "+watermillSchema.MessagesTable(benchType)+
		"), (SELECT COALESCE(MAX(offset_acked),0) FROM "+watermillOffsets.MessagesOffsetsTable(benchType)+")").Scan(&last, &acked))
	if acked < last {
		return n - 1
	}
	return handled
}

func (w *watermillPeer) close() {
	w.a.Helper()
	w.stop()
	w.a.must(w.own.Close())
	w.a.must(w.db.Close())
}

func (a *arena) migrateWatermill() {
	a.Helper()
	for _, queries := range [][]watermillsql.Query{watermillSchema.SchemaInitializingQueries(benchType), watermillOffsets.SchemaInitializingQueries(benchType)} {
		for _, q := range queries {
			a.exec(q.Query, q.Args...)
		}
	}
}

func (a *arena) emptyWatermill() {
	a.Helper()
	a.exec("TRUNCATE TABLE " + watermillSchema.MessagesTable(benchType))
	a.exec("TRUNCATE TABLE " + watermillOffsets.MessagesOffsetsTable(benchType))
}
