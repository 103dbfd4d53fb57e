package adopt

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

type rig struct {
	*harness.World
	c *compensator.Compensator
}

const oldTable = `CREATE TABLE old_log (
	id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
	kind VARCHAR(80) NOT NULL,
	content TEXT NOT NULL,
	state TINYINT NOT NULL DEFAULT 0,
	KEY (state)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

func newRig(t *testing.T) *rig {
	w := harness.NewWorld(t)
	w.Exec(oldTable)
	return &rig{World: w, c: w.New(w.QuickConfig())}
}

type order struct {
	N int `json:"n"`
}

const (
	waits = 0
	taken = 9
)

// The Take of this Config removes rows from the old system.
func moving() Config {
	return Config{
		Name: "old", Table: "old_log", Key: "id", Columns: []string{"kind", "content"}, Where: "state = 0", Take: "state = 9",
		Map: mapRow, Page: 20, Rest: time.Millisecond, Every: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// This Config leaves the old table unchanged.
func copying() Config {
	cfg := moving()
	cfg.Take = ""
	return cfg
}

func mapRow(row *Row) (compensator.NewEntry, error) {
	var kind, content string
	if err := row.Scan(&kind, &content); err != nil {
		return compensator.NewEntry{}, err
	}
	switch kind {
	case "gone":
		return compensator.NewEntry{}, Skip("a type of long ago")
	case "panic":
		panic("no luck")
	}
	var o order
	if err := json.Unmarshal([]byte(content), &o); err != nil {
		return compensator.NewEntry{}, err
	}
	return compensator.NewEntry{BusinessType: kind, Content: []byte(content)}, nil
}

func (r *rig) add(kind string, n int) {
	r.T.Helper()
	for n > 0 {
		part := min(n, 500)
		values := strings.TrimSuffix(strings.Repeat("(?,'{\"n\":1}'),", part), ",")
		args := make([]any, part)
		for i := range args {
			args[i] = kind
		}
		r.Exec("INSERT INTO old_log (kind, content) VALUES "+values, args...)
		n -= part
	}
}

func (r *rig) open(cfg Config) *Import {
	r.T.Helper()
	im, err := Open(r.c, cfg)
	require.NoError(r.T, err)
	return im
}

func (r *rig) once(im *Import) *Report {
	r.T.Helper()
	report, err := im.Once(r.T.Context())
	require.NoError(r.T, err)
	return report
}

func (r *rig) start(im *Import) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- im.Run(ctx) }()
	var err error
	stopped := false
	stop = func() error {
		if cancel(); !stopped {
			err, stopped = <-result, true
		}
		return err
	}
	r.T.Cleanup(func() { _ = stop() })
	return stop
}

func (r *rig) requireOneEach(kind string, rows int) {
	r.T.Helper()
	require.Equal(r.T, rows, r.Count("old_log WHERE kind=?", kind), "rows")
	require.Equal(r.T, rows, r.Count("common_process_log WHERE business_type=?", kind), "entries")
	require.Equal(r.T, rows, r.Count("old_log o JOIN common_process_log e ON e.idempotent_id = CONCAT('old:', o.id) AND e.business_type = o.kind WHERE o.kind=?", kind), "pairs")
}

func refusals(r *Report) (rows []string) {
	for _, refusal := range r.Refusals {
		rows = append(rows, refusal.Key+" "+refusal.BusinessType)
	}
	return rows
}
