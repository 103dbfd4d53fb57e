// Package cron makes a schedule for a periodic type of a cron expression.
//
//	berlin, err := time.LoadLocation("Europe/Berlin")
//	schedule, err := cron.Parse("30 2 * * *", berlin)
//	err = compensator.Periodic(ctx, settleDay, schedule, compensator.PeriodicConfig{})
//
// Expressions are read by github.com/robfig/cron: minute, hour, day of the month, month, day of the week, or one of @hourly,
// @daily, @weekly, @monthly, @yearly. Where the clock is set forward or back it differs: see [Parse].
package cron
