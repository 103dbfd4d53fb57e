// Package cron turns a cron expression into a schedule for a periodic type.
//
//	berlin, err := time.LoadLocation("Europe/Berlin")
//	schedule, err := cron.Parse("30 2 * * *", berlin)
//	err = compensator.Periodic(ctx, settleDay, schedule, nil)
//
// The parser is github.com/robfig/cron. An expression has the fields minute, hour, day of the month, month and day of
// the week. It may also be one of @hourly, @daily, @weekly, @monthly and @yearly. When the clock is set forward or
// back, the slots differ from those of robfig/cron. See [Parse].
package cron
