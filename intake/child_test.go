package intake

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

const childEnv = "COMPENSATOR_INTAKE_CHILD"

type program struct {
	DSN, Redis, Stream string
	Killer             int    // the order whose Work ends the process (0: none)
	Gate               string // Redis key that the child increments when everything is open; it runs the Intake when the parent has deleted the key
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func runChild() {
	var p program
	must(json.Unmarshal([]byte(os.Getenv(childEnv)), &p))
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0) // The parent has ended.
	}()
	db, err := harness.WatchedPool(p.DSN)()
	must(err)
	quiet := slog.New(slog.DiscardHandler)
	c, err := compensator.New(context.Background(), compensator.Config{DB: db, Logger: quiet})
	for err != nil { // The test cuts the child's connections too.
		harness.Elapse(10 * time.Millisecond)
		c, err = compensator.New(context.Background(), compensator.Config{DB: db, Logger: quiet})
	}
	cfg := testConfig()
	cfg.Work = failing(func(m *Message) error {
		switch n := m.Value.(order).N; {
		case n == p.Killer && n > 0:
			os.Exit(3)
		case n%1000 == 500:
			return errTest
		}
		return nil
	})
	client := redis.NewClient(&redis.Options{Addr: p.Redis})
	in, err := openSoon(c, Stream{
		Redis: client, Stream: p.Stream, Group: "shop", Block: 20 * time.Millisecond,
	}, time.Second, cfg)
	must(err)
	if p.Gate != "" {
		must(client.Incr(context.Background(), p.Gate).Err())
		for client.Exists(context.Background(), p.Gate).Val() > 0 {
			harness.Elapse(5 * time.Millisecond)
		}
	}
	must(in.Run(context.Background()))
}
