package people

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/harness"
	"github.com/compensator-go/compensator/observe/probe"
	"github.com/compensator-go/compensator/serve"
)

// Failure: F85
func TestServiceWithTwoDatabasesRunsStopsAndReportsBothLogs(t *testing.T) {
	t.Parallel()
	var logs []*compensator.Compensator
	var gates []*harness.Gate
	var worlds []*harness.World
	var ids []compensator.EntryID
	for _, name := range []string{"orders", "stock"} {
		w := harness.NewWorld(t).WithRedis()
		cfg := w.QuickConfig()
		cfg.Name = name
		c := w.New(cfg)
		typ, gate := harness.HandleGated(t, c, name, compensator.HandlerConfig[harness.Order]{}, nil)
		logs, gates, worlds = append(logs, c), append(gates, gate), append(worlds, w)
		ids = append(ids, w.Record(typ, 1, compensator.Options{}))
	}
	probed := probe.Ready(waitTimeout, logs[0], logs[1])
	status, body := ready(t, probed)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.JSONEq(t, `{"ready":false,"because":"orders: run, stock: run"}`, body)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, serve.Config{}, logs[0], logs[1]) }()
	for i, gate := range gates {
		require.Equal(t, ids[i], gate.Await(t))
	}
	worlds[0].Eventually(func() bool { status, _ = ready(t, probed); return status == http.StatusOK }, "both logs are at work")
	stop()
	worlds[0].Eventually(func() bool {
		_, body = ready(t, probed)
		return body == `{"ready":false,"because":"orders: run, stock: run"}`+"\n"
	}, "both logs stop")
	for i, gate := range gates {
		gate.Open()
		worlds[i].WaitState(ids[i], compensator.Succeeded)
	}
	require.NoError(t, <-ended)
}
