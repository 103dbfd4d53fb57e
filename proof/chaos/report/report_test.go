package main

import (
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/proof/chaos/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func synthetic(t *testing.T, dir string) {
	r := rand.New(rand.NewPCG(1, 2))
	const begin, seconds = int64(1_700_000_000_000_000), 120
	kinds := []string{"app kill", "app stop", "mariadb kill", "commit reply dropped", "redis flush", "lock storm", "redis stop"}
	driver := []history.Record{
		&history.Process{App: "driver", PID: 1, At: begin},
		&history.Run{
			At: begin, Seed: 7, FaultKinds: append([]string{"clock skew"}, kinds...), Versions: map[string]string{"mariadb": "10.11", "redis": "7.0"},
			Types:       []history.Type{{Name: "ship", Handler: history.HandlerPlain, MaxAttempts: 3, LeaseMS: 2000}},
			Unavailable: map[string]string{"clock moves": "no libfaketime"},
		},
	}
	var slow [seconds]int64 // for second s: time in µs until the end of the fault that is active then
	for n := uint64(1); n <= 24; n++ {
		at, lasts := begin+int64(r.IntN(90)+5)*1_000_000, int64(r.IntN(4_000_000)+300_000)
		driver = append(driver, &history.Fault{At: at, N: n, Fault: kinds[int(n)%len(kinds)], Touches: []string{history.TouchesDatabase, history.TouchesLocks}},
			&history.FaultEnd{At: at + lasts, N: n})
		for s := (at - begin) / 1_000_000; s <= (at+lasts-begin)/1_000_000; s++ {
			slow[s] = max(slow[s], at+lasts-begin-s*1_000_000)
		}
	}
	producer := []history.Record{&history.Process{App: "producer", PID: 2, At: begin}}
	app := []history.Record{&history.Process{App: "app1", PID: 3, At: begin}}
	seq, id := uint64(0), uint64(0)
	audit := func(op string, key string, at int64, before, after *history.Image) {
		seq++
		driver = append(driver, &history.Audit{Seq: seq, Op: op, ID: id, Key: key, Type: "ship", DBNow: at, Old: before, New: after})
	}
	for s := range int64(100) {
		for range 15 + r.IntN(10) {
			id++
			at, key := begin+s*1_000_000+int64(r.IntN(1_000_000)), fmt.Sprint("key-", id)
			late := int64(r.ExpFloat64() * 2000)
			if slow[s] > 0 && r.IntN(3) == 0 {
				late += int64(r.IntN(int(slow[s])))
			}
			producer = append(producer, &history.Insert{At: at, Tx: id, Key: key, Type: "ship"}, &history.Inserted{At: at, Tx: id, Key: key, ID: id},
				&history.Commit{At: at, Tx: id}, &history.Committed{At: at, Tx: id, Outcome: history.CommitOK})
			inserted := &history.Image{NextAt: at / 1000, Token: "a"}
			claimed := &history.Image{Version: 1, NextAt: at / 1000, Token: "b", DeliveryCount: 1, LeaseUntil: (at+late)/1000 + 2000}
			done := &history.Image{State: 1, Version: 2, NextAt: (at + late + 900) / 1000, Token: "c", EndedBy: "handler"}
			audit(history.OpInsert, key, at, nil, inserted)
			audit(history.OpUpdate, key, at+late, inserted, claimed)
			audit(history.OpUpdate, key, at+late+900, claimed, done)
			app = append(app, &history.Attempt{At: at + late + 100, Run: id, ID: id, Key: key, Version: 1, Attempt: 1, NextAt: at / 1000},
				&history.AttemptEnd{At: at + late + 500, Run: id, ID: id, Outcome: history.OutcomeOK})
			driver = append(driver, &history.Row{ID: id, Key: key, Type: "ship", DBNow: at, Image: *done})
		}
	}
	driver = append(driver, &history.Mark{At: begin + 98_000_000, What: history.MarkHealed}, &history.Mark{At: begin + 101_000_000, What: history.MarkStopped},
		&history.Mark{At: begin + 119_000_000, What: history.MarkQuiescent})
	for name, records := range map[string][]history.Record{"driver": driver, "producer": producer, "app1": app} {
		lines, err := history.Encode(records...)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".history.jsonl"), lines, 0o644))
	}
}

func TestReportTellsTheRunAndShowsItsCourse(t *testing.T) {
	dir := os.Getenv("REPORT_DIR") // Set REPORT_DIR to keep the report.
	if dir == "" {
		dir = t.TempDir()
	}
	synthetic(t, dir)
	require.NoError(t, run(dir))

	text, err := os.ReadFile(filepath.Join(dir, "report.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"# Chaos run, seed 7: VACUOUS", "mariadb 10.11.", "| lost | ", "| held |", "| app kill | 3 | 0 |", "| clock skew | 0 | 0 |",
		"| no fault felt | ", "- fault: clock skew: it never fired", "not available: no libfaketime",
	} {
		require.Contains(t, string(text), want)
	}
	file, err := os.Open(filepath.Join(dir, "report.png"))
	require.NoError(t, err)
	defer file.Close()
	picture, err := png.Decode(file)
	require.NoError(t, err)
	require.Greater(t, picture.Bounds().Dx(), 1000)
	svg, err := os.ReadFile(filepath.Join(dir, "report.svg"))
	require.NoError(t, err)
	require.Contains(t, string(svg), "redis flush")
}

func TestRunWithoutAnythingHasAReport(t *testing.T) {
	dir := t.TempDir()
	lines, err := history.Encode(&history.Process{App: "driver", At: 1}, &history.Run{Types: []history.Type{{Name: "ship"}}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "driver.history.jsonl"), lines, 0o644))
	require.NoError(t, run(dir))
	require.FileExists(t, filepath.Join(dir, "report.png"))
}

func TestUnreadableHistoryHasNoReport(t *testing.T) { require.Error(t, run(t.TempDir())) }
