package adopt

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
)

var (
	rows  = flag.Int("rows", 3000, "number of rows that old services write while importers are killed")
	kills = flag.Int("kills", 5, "number of importers that are killed with SIGKILL meanwhile")
	seed  = flag.Uint64("seed", 0, "seed for the choice of kills; 0 chooses a seed")
)

const childEnv = "COMPENSATOR_ADOPT_CHILD"

type program struct {
	DSN  string
	Copy bool
}

func runChild() {
	var p program
	must(json.Unmarshal([]byte(os.Getenv(childEnv)), &p))
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0) // The parent process has ended.
	}()
	db, err := harness.WatchedPool(p.DSN)()
	must(err)
	c, err := compensator.New(context.Background(), compensator.Config{DB: db, Logger: slog.New(slog.DiscardHandler)})
	must(err)
	cfg := moving()
	if p.Copy {
		cfg = copying()
	}
	im, err := Open(c, cfg)
	must(err)
	must(im.Run(context.Background()))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// kill sends SIGKILL and waits for the end of the process.
func (r *rig) child(p program) (kill func()) {
	text, err := json.Marshal(p)
	require.NoError(r.T, err)
	binary, err := os.Executable()
	require.NoError(r.T, err)
	cmd := exec.Command(binary)
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(text)), os.Stderr
	_, err = cmd.StdinPipe() // The pipe closes when this process ends, and the child then exits.
	require.NoError(r.T, err)
	require.NoError(r.T, cmd.Start())
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.T.Cleanup(kill)
	return kill
}

// Two importers are killed and started again, while old services write rows and roll back one transaction in ten.
// Failure: F109
func TestNoRowIsLostOrDoubledWhileImportersAreKilled(t *testing.T) {
	for name, copy := range map[string]bool{"taking": false, "copying": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			drawn := *seed
			if drawn == 0 {
				drawn = rand.Uint64()
			}
			t.Logf("-seed=%d", drawn)
			draw := rand.New(rand.NewPCG(drawn, 7722))
			written := make(chan int, 1)
			go func() { written <- r.write(*rows) }()
			p := program{DSN: r.DSN, Copy: copy}
			killers := [...]func(){r.child(p), r.child(p)}
			for k := 1; k <= *kills; k++ {
				at := *rows * k / (*kills + 3)
				r.Eventually(func() bool { return r.Count("common_process_log") >= at }, "the import goes on")
				harness.Elapse(time.Duration(draw.IntN(20)) * time.Millisecond)
				which := draw.IntN(len(killers))
				killers[which]()
				killers[which] = r.child(p)
			}
			want := <-written
			r.Eventually(func() bool { return r.Count("common_process_log") >= want }, "all %d are entries", want)
			if !copy {
				r.Eventually(func() bool { return r.Count("old_log WHERE state=?", waits) == 0 }, "every row is taken")
			}
			r.requireOneEach("pay", want)
		})
	}
}

// Four old services commit their transactions in another order than they insert. write returns the number of committed
// rows.
func (r *rig) write(n int) (committed int) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards committed
	for range 4 {
		all.Go(func() {
			for i := range n / 4 {
				tx, err := r.DB.Begin()
				if !assert.NoError(r.T, err) {
					return
				}
				_, err = tx.Exec("INSERT INTO old_log (kind, content) VALUES ('pay', '{}')")
				assert.NoError(r.T, err, "an old service is not disturbed")
				if i%50 == 0 {
					harness.Elapse(10 * time.Millisecond)
				}
				if i%10 == 3 {
					assert.NoError(r.T, tx.Rollback())
					continue
				}
				assert.NoError(r.T, tx.Commit())
				mu.Lock()
				committed++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return committed
}

// As the documentation page requires, the old scanner claims a row before running it.
// Failure: F109
func TestOldScannerAndImportSideBySideRunEachRowOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pay, err := compensator.HandleTx(t.Context(), r.c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, e *compensator.Entry, _ order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (what) VALUES (?)", e.IdempotencyKey)
		return err
	}, nil)
	require.NoError(t, err)
	require.Equal(t, "pay", pay.Name())
	r.Run(r.c)
	stops := []func() error{r.start(r.open(moving())), r.start(r.open(moving()))}
	ctx, stop := context.WithCancel(context.Background())
	var scanners sync.WaitGroup
	for range 2 {
		scanners.Go(func() { r.scanManually(ctx) })
	}
	want := r.write(800)
	r.Eventually(func() bool { return r.Count("effects") >= want }, "all ran")
	r.WaitAllEnded()
	stop()
	scanners.Wait()
	for _, stop := range stops {
		require.NoError(t, stop())
	}
	assert.Equal(t, want, r.Count("effects"))
	assert.Equal(t, want, r.Count("(SELECT DISTINCT what FROM effects) AS d"), "each once")
	manual := r.Count("old_log WHERE state=1")
	assert.Equal(t, want, manual+r.Count("common_process_log"))
	t.Logf("%d by the old scanner, %d by the log", manual, want-manual)
}

func (r *rig) scanManually(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := r.DB.Query("SELECT id FROM old_log WHERE state=0 ORDER BY id LIMIT 5")
		if !assert.NoError(r.T, err) {
			return
		}
		var ids []int64
		for found.Next() {
			var id int64
			assert.NoError(r.T, found.Scan(&id))
			ids = append(ids, id)
		}
		_ = found.Close()
		for _, id := range ids {
			claimed, err := r.DB.Exec("UPDATE old_log SET state=5 WHERE id=? AND state IN (0,-1)", id)
			if !assert.NoError(r.T, err) {
				return
			}
			if n, _ := claimed.RowsAffected(); n == 1 {
				r.Exec("INSERT INTO effects (what) VALUES (?)", fmt.Sprint("old:", id))
				r.Exec("UPDATE old_log SET state=1 WHERE id=?", id)
			}
		}
		harness.Elapse(5 * time.Millisecond)
	}
}
