package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/compensator-go/compensator"
)

// pastTime is how far the statistics reach back.
const pastTime = 6 * time.Hour

// storePast gives the shop a past, because the charts of a new log are empty. No entries belong to this past.
func storePast(ctx context.Context, db *sql.DB) error {
	thisMinute := time.Now().UTC().Truncate(time.Minute)
	for age := time.Minute; age <= pastTime; age += time.Minute {
		at := thisMinute.Add(-age)
		for i, businessType := range []string{"refund", "transfer", "invoice_mail", "close_order", "ship_parcel"} {
			recorded := 20 + (at.Minute()*7+i*11)%17
			failed, dead := (at.Minute()+i)%3, 0
			if businessType == "refund" && age < 30*time.Minute {
				failed, dead = recorded*3, recorded/2
			}
			if _, err := db.ExecContext(ctx, "INSERT INTO common_process_log_stat (instance, at, business_type, recorded, started, succeeded, failed, dead, took_20ms, took_250ms, took_5s, late_5ms, late_100ms)"+
				" VALUES ('', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", at.UnixMilli(), businessType, recorded, recorded+failed, recorded-dead, failed, dead,
				recorded-4, 3, failed, recorded-2, 2+failed); err != nil {
				return fmt.Errorf("store statistics: %w", err)
			}
		}
	}
	for _, past := range []struct {
		name, build                    string
		startedAgo, seenAgo, endsAfter time.Duration
	}{
		{"api-1", "v2.3.0", 50 * time.Hour, 40 * time.Minute, 50*time.Hour - 40*time.Minute},
		{"api-2", "v2.4.0", 40 * time.Minute, 10 * time.Minute, 0},
	} {
		ended, now := int64(0), time.Now()
		if past.endsAfter > 0 {
			ended = now.Add(past.endsAfter - past.startedAgo).UnixMilli()
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO common_process_log_instance (id, name, library, build, started_at, seen_at, ended_at, running, queue, types) VALUES (?, ?, 'v0.1.0', ?, ?, ?, ?, ?, '', '[]')",
			[]byte(past.name+"old"), past.name, past.build, now.Add(-past.startedAgo).UnixMilli(), now.Add(-past.seenAgo).UnixMilli(), ended, ended == 0); err != nil {
			return fmt.Errorf("store a process: %w", err)
		}
	}
	return nil
}

func addReport(ctx context.Context, c *compensator.Compensator) error {
	report, err := compensator.Handle(ctx, c, "stock_report", func(context.Context, *compensator.Entry, time.Time) error { return nil }, nil)
	if err != nil {
		return err
	}
	return compensator.Periodic(ctx, report, compensator.Every(time.Minute), nil)
}
