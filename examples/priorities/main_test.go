package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
)

const asItself = "COMPENSATOR_PRIORITIES"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestUrgentRefundsDoNotWaitForNormalOnes(t *testing.T) {
	t.Parallel()
	db, err := compensator.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "refunds.db")+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, compensator.Migrate(t.Context(), db))
	c, err := compensator.New(t.Context(), compensator.Config{DB: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	var urgentLeft sync.WaitGroup
	urgentLeft.Add(3)
	var mu sync.Mutex // guards ended
	var ended []string
	urgent, normal := register(t.Context(), c, func(_ context.Context, e *compensator.Entry, _ Refund) error {
		if e.BusinessType == "refund" {
			urgentLeft.Wait()
		} else {
			defer urgentLeft.Done()
		}
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, e.BusinessType)
		return nil
	})
	require.NoError(t, record(t.Context(), c, urgent, normal))
	compensatortest.Run(t, c)
	compensatortest.WaitIdle(t, c)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, ended, 13)
	assert.Equal(t, []string{"refund_urgent", "refund_urgent", "refund_urgent"}, ended[:3])
}

func TestProgramRunsAllRefunds(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	run := exec.Command(program)
	run.Dir, run.Env = t.TempDir(), append(os.Environ(), asItself+"=1")
	printed, err := run.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	assert.Equal(t, 3, strings.Count(string(printed), "refund_urgent "), "%s", printed)
	assert.Equal(t, 10, strings.Count(string(printed), "refund "), "%s", printed)
}
