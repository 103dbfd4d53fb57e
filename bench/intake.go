package bench

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/intake"
)

const (
	intakeStream = "bench:orders"
	intakeGroup  = "shop"
	intakeBatch  = 200 // the default of an Intake; the floor has the same batch
)

// intakeOrder returns the INSERT of n orders. Both the library and the floor run this statement.
func intakeOrder(n int) string {
	return "INSERT INTO orders (buyer, amount, note) VALUES " + strings.Repeat("(1,100,?),", n-1) + "(1,100,?)"
}

// addMessages adds n messages to the stream. The argument undecodable is the number of messages in every thousand that
// cannot be decoded.
func (a *arena) addMessages(n, undecodable int) {
	a.Helper()
	client := a.client()
	defer client.Close()
	ctx := a.Context()
	a.must(client.Del(ctx, intakeStream).Err())
	for first := 0; first < n; first += 1000 {
		pipe := client.Pipeline()
		for i := first; i < min(first+1000, n); i++ {
			value := content
			if i%1000 < undecodable {
				value = []byte("none")
			}
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: intakeStream, Values: []any{"order", value}})
		}
		_, err := pipe.Exec(ctx)
		a.must(err)
	}
}

// takenIn compares the intake with a floor, a hand-written program that sends the same statements. The floor does not
// handle failures, unknown commits or redelivered messages.
func (a *arena) takenIn(n int) contest {
	return contest{
		work: "intake from a Redis Stream", other: "floor: XREADGROUP, 2 INSERTs, XACK", unit: "messages/s", goal: 0.85,
		prepare: func() { a.addMessages(n, 0) },
		ours:    func() float64 { return a.intake(n) }, theirs: func() float64 { return a.bareIntake(n) },
	}
}

func (a *arena) poisoned(n int) contest {
	return contest{
		work: "intake, 1 in 1,000 is poison", other: "the same, none is", unit: "messages/s", goal: 0.9,
		ours:   func() float64 { a.addMessages(n, 1); return a.intake(n) },
		theirs: func() float64 { a.addMessages(n, 0); return a.intake(n) },
	}
}

func (a *arena) intake(n int) float64 {
	a.Helper()
	l := a.newLibrary(1, nil)
	defer l.close()
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	settled := 0
	in, err := intake.Stream{Redis: l.client, Stream: intakeStream, Group: intakeGroup}.Open(ctx, l.Compensator, intake.Config{
		Type: "aside", Batch: intakeBatch, Logger: slog.New(slog.DiscardHandler),
		Entry: func(m *intake.Message) (compensator.NewEntry, error) {
			text := m.Fields["order"]
			if len(text) != len(content) {
				return compensator.NewEntry{}, errors.New("no order")
			}
			return compensator.NewEntry{BusinessType: benchType, Content: []byte(text), Options: compensator.Options{Delay: time.Hour}}, nil
		},
		Work: func(ctx context.Context, tx *compensator.ScopedTx, batch []*intake.Message) error {
			_, err := tx.ExecContext(ctx, intakeOrder(len(batch)), notes(len(batch))...)
			return err
		},
		Observer: intake.Observer{Settled: func(e intake.SettledEvent) {
			if settled += e.Messages; settled >= n {
				cancel()
			}
		}},
	})
	a.must(err)
	began := time.Now()
	a.must(in.Run(ctx))
	took := time.Since(began)
	if stats, _ := in.Stats(a.Context()); stats.Recorded+stats.SetAside != int64(n) {
		a.must(fmt.Errorf("%d messages, and %+v", n, stats))
	}
	return float64(n) / took.Seconds()
}

func notes(n int) []any {
	args := make([]any, n)
	for i := range args {
		args[i] = note
	}
	return args
}

func (a *arena) bareIntake(n int) float64 {
	a.Helper()
	db, client := a.openPlain(4), a.client()
	defer db.Close()
	defer client.Close()
	ctx := a.Context()
	a.must(client.XGroupCreateMkStream(ctx, intakeStream, intakeGroup, "0").Err())
	token := uuid.New()
	began := time.Now()
	for taken := 0; taken < n; {
		streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: intakeGroup, Consumer: "one", Streams: []string{intakeStream, ">"}, Count: intakeBatch, Block: time.Second}).Result()
		a.must(err)
		messages := streams[0].Messages
		args, ids := make([]any, 0, 13*len(messages)), make([]string, len(messages))
		for i, m := range messages {
			ids[i] = m.ID
			args = append(args, intakeStream+":"+m.ID, benchType, "", "", "", "", "", m.Values["order"], []byte{}, int64(0), int64(3600), hex.EncodeToString(token[:]), int64(3_600_000))
		}
		tx, err := db.BeginTx(ctx, nil)
		a.must(err)
		_, err = tx.ExecContext(ctx, intakeOrder(len(messages)), notes(len(messages))...)
		a.must(err)
		_, err = tx.ExecContext(ctx, floorInsert+strings.Repeat(floorTuple+",", len(messages)-1)+floorTuple, args...)
		a.must(err)
		a.must(tx.Commit())
		a.must(client.XAck(ctx, intakeStream, intakeGroup, ids...).Err())
		taken += len(messages)
	}
	return float64(n) / time.Since(began).Seconds()
}
