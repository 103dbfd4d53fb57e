package cron_test

import (
	"fmt"
	"time"

	"github.com/compensator-go/compensator/cron"
)

func ExampleParse() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	schedule, err := cron.Parse("30 2 * * *", berlin)
	if err != nil {
		fmt.Println(err)
		return
	}
	slot := time.Date(2026, 3, 27, 12, 0, 0, 0, berlin)
	for range 3 {
		slot = schedule.Next(slot)
		fmt.Println(slot.In(berlin))
	}
	// Output:
	// 2026-03-28 02:30:00 +0100 CET
	// 2026-03-29 03:00:00 +0200 CEST
	// 2026-03-30 02:30:00 +0200 CEST
}
