package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func TestServers(t *testing.T) {
	writer, err := history.Create(t.TempDir(), "driver")
	require.NoError(t, err)
	defer writer.Close()
	st := &stage{tb: t, cfg: Config{Faults: Faults{Hold: 100 * time.Millisecond}}.withDefaults(), history: writer, servers: newServers(t)}
	proxies := st.newProxies()
	app, err := sql.Open("mysql", proxies.dsn(false))
	require.NoError(t, err)
	defer app.Close()
	strike := func(kind string) *strike {
		for _, f := range faultKinds() {
			if f.kind == kind {
				return &strike{stage: st, ctx: t.Context(), planned: planned{fault: f, held: 1}, rand: rand.New(rand.NewPCG(1, 1))}
			}
		}
		require.FailNow(t, "no such fault: "+kind)
		return nil
	}

	t.Run("AuditHoldsEveryCommittedChangeAndNoOther", func(t *testing.T) { testAudit(t, st, app) })
	t.Run("ReadOnlyServerRefusesTheAppsWrites", func(t *testing.T) {
		k := strike("database read-only")
		done := make(chan error, 1)
		go func() { done <- k.fault.strike(k) }()
		require.Eventually(t, func() bool {
			_, err := app.Exec("UPDATE accounts SET n=n+1 WHERE id=1")
			return isServerError(err, 1290)
		}, time.Minute, time.Millisecond)
		require.NoError(t, <-done)
		_, err := app.Exec("UPDATE accounts SET n=n+1 WHERE id=1")
		require.NoError(t, err)
	})
	t.Run("ClocksMoveWhileTheServersRun", func(t *testing.T) { testClocks(t, st) })
	t.Run("TableGetsAColumnAndLosesIt", func(t *testing.T) {
		k := strike("table altered")
		require.NoError(t, k.fault.strike(k))
		require.NoError(t, k.fault.strike(k))
	})
	t.Run("FailoverLosesWhatTheFollowerMissed", func(t *testing.T) { testFailover(t, st, proxies, strike("redis failover, lossy")) })
}

func testAudit(t *testing.T, st *stage, app *sql.DB) {
	insert := "INSERT INTO common_process_log (idempotent_id, business_type, content, next_at, created_at, updated_at) VALUES (?, 'pay', '', 5, NOW(), NOW())"
	tx, err := app.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(insert, "undone")
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	for _, statement := range []string{
		"UPDATE common_process_log SET state=-1, version=3, epoch=1, token=UNHEX('0a0b'), process_count=2, compensate_count=4, delivery_count=6, next_at=7, lease_until=8",
		"UPDATE common_process_log SET ended_by='person'",
		"DELETE FROM common_process_log",
	} {
		if _, err = app.Exec(insert, statement[:6]+fmt.Sprint(len(statement))); err == nil {
			_, err = app.Exec(statement)
		}
		require.NoError(t, err)
	}
	w := &batchWriter{stage: st}
	require.NoError(t, st.dumpAudit(w))
	var first []*history.Audit
	for _, r := range w.records {
		a := r.(*history.Audit)
		require.NotEqual(t, "undone", a.Key)
		if a.ID == w.records[0].(*history.Audit).ID {
			first = append(first, a)
		}
	}
	require.Len(t, first, 4)
	now := time.Now().UnixMicro()
	for _, a := range first {
		require.InDelta(t, now, a.DBNow, 60e6)
		require.NotZero(t, a.Conn)
	}
	fresh := &history.Image{NextAt: 5}
	moved := &history.Image{State: -1, Version: 3, Epoch: 1, Token: "0a0b", ProcessCount: 2, CompensateCount: 4, DeliveryCount: 6, NextAt: 7, LeaseUntil: 8}
	require.Equal(t, []any{history.OpInsert, (*history.Image)(nil), fresh}, []any{first[0].Op, first[0].Old, first[0].New})
	require.Equal(t, []any{history.OpUpdate, fresh, moved}, []any{first[1].Op, first[1].Old, first[1].New})
	require.Equal(t, history.OpDelete, first[3].Op)
	require.Equal(t, "person", first[3].Old.EndedBy)
	require.Nil(t, first[3].New)
}

func testClocks(t *testing.T, st *stage) {
	if st.clocks == nil {
		require.Error(t, st.clocksWhy)
		return
	}
	offsets := func() (inSQL, inRedis time.Duration) {
		var us int64
		require.NoError(t, st.db.QueryRow("SELECT "+dbNow).Scan(&us))
		client := st.mainRedis()
		defer client.Close()
		now, err := client.Time(t.Context()).Result()
		require.NoError(t, err)
		return time.Until(time.UnixMicro(us)), time.Until(now)
	}
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		require.NoError(t, st.clocks.set(sqlClock, by))
		require.NoError(t, st.clocks.set(redisClock, -by))
		inSQL, inRedis := offsets()
		require.InDelta(t, by, inSQL, float64(time.Minute))
		require.InDelta(t, -by, inRedis, float64(time.Minute))
	}
}

func testFailover(t *testing.T, st *stage, p *proxies, k *strike) {
	app := redis.NewClient(&redis.Options{Addr: p.redis.Addr()})
	defer app.Close()
	require.NoError(t, app.Set(t.Context(), "before", "1", 0).Err())
	follower := st.redisClient(1 - st.main)
	defer follower.Close()
	require.Eventually(t, func() bool { return follower.Get(t.Context(), "before").Val() == "1" }, time.Minute, time.Millisecond)
	old := st.main
	done := make(chan error, 1)
	writing, endWriting := context.WithCancel(t.Context())
	go func() {
		err := k.fault.strike(k)
		endWriting()
		done <- err
	}()
	acknowledged := 0
	for writing.Err() == nil {
		if app.RPush(writing, "list", "x").Err() == nil {
			acknowledged++
		}
	}
	require.NoError(t, <-done)
	require.Equal(t, 1-old, st.main)
	require.Equal(t, "1", app.Get(t.Context(), "before").Val(), "the new leader must keep what it received before the cut")
	kept, err := app.LLen(t.Context(), "list").Result()
	require.NoError(t, err)
	require.Less(t, int(kept), acknowledged, "the failover must lose acknowledged writes")
	follower2 := st.redisClient(old)
	defer follower2.Close()
	require.Eventually(t, func() bool { return follower2.Get(t.Context(), "before").Val() == "1" }, time.Minute, 10*time.Millisecond, "the old leader must follow the new one")
}
