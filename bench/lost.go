package bench

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator"
)

// Three processes run the entries of one type. The fields say how many entries ran in each second, with the loss of the
// queue and without it.
type lostType struct {
	Undisturbed []int `json:"undisturbed"`
	Lost        []int `json:"lost"`
	plan        lossPlan
}

const (
	lostProcesses = 3
	lostSlots     = 4
	lostTakes     = 40 * time.Millisecond // duration of each handler; it waits as if it called a service
)

type lossPlan struct {
	due     int           // entries that are due when the measurement begins
	later   int           // entries that come due one after the other during the measurement, as fast as they are run
	records time.Duration // time within which all entries are recorded
	at      int           // second at whose start Redis loses the queue
	seconds int
}

var (
	wholeLoss = lossPlan{due: 2400, later: 2400, records: 6 * time.Second, at: 7, seconds: 17}
	shortLoss = lossPlan{due: 400, later: 400, records: 2 * time.Second, at: 1, seconds: 3} // for a trial run only
)

var losses = map[string]func(a *arena, client *redis.Client){
	"its key": (*arena).loseKey,
	"its key, and has no memory left": func(a *arena, client *redis.Client) {
		a.fillRedis(client)
		a.loseKey(client)
	},
	"all, for it answers nobody": func(a *arena, client *redis.Client) {
		a.must(client.Do(a.Context(), "ACL", "SETUSER", "default", "-@scripting").Err())
	},
	"its memory": (*arena).fillRedis,
	"its key to another type's": func(a *arena, client *redis.Client) {
		const other = "{compensator:v1:0}:other:0:due"
		a.must(client.ZAdd(a.Context(), other, redis.Z{Score: 8e15, Member: "whole " + other}).Err())
		a.must(client.Rename(a.Context(), other, dueKey).Err())
	},
	"its key to a list": func(a *arena, client *redis.Client) {
		a.loseKey(client)
		a.must(client.RPush(a.Context(), dueKey, "another application's").Err())
	},
}

func (a *arena) loseKey(client *redis.Client) { a.must(client.Del(a.Context(), dueKey).Err()) }

func (a *arena) fillRedis(client *redis.Client) {
	a.must(client.ConfigSet(a.Context(), "maxmemory", "1").Err())
}

// ratio divides the number of entries that ran with the loss by the number that ran without it. It covers the seconds
// from first to end-1 of the run. The first second has the number 0. If the range is empty, ratio returns "–".
func (l lostType) ratio(first, end int) string {
	if first >= end {
		return "–"
	}
	sum := func(perSecond []int) (n float64) {
		for _, k := range perSecond[first:end] {
			n += float64(k)
		}
		return n
	}
	return fmt.Sprintf("%.2f", sum(l.Lost)/sum(l.Undisturbed))
}

const lostHead = "| a second, undisturbed | a second, Redis having lost %s at the start of the 8th | of the undisturbed: 1st second after it | 2nd to 5th | from the 6th on |\n| --- | --- | ---: | ---: | ---: |"

func (l lostType) String() string {
	list := func(perSecond []int) string { return strings.Trim(fmt.Sprint(perSecond), "[]") }
	at, end := l.plan.at, l.plan.seconds
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", list(l.Undisturbed), list(l.Lost),
		l.ratio(at, at+1), l.ratio(at+1, min(at+5, end)), l.ratio(at+5, end))
}

// In odd pairs, the run with the loss is first.
func (a *arena) measureLostType(plan lossPlan, pair int, loses func(*arena, *redis.Client)) lostType {
	a.Helper()
	l := lostType{plan: plan}
	sides := []func(){
		func() { l.Undisturbed = a.settledByThree(plan, func(*arena, *redis.Client) {}) },
		func() { l.Lost = a.settledByThree(plan, loses) },
	}
	if pair%2 == 1 {
		slices.Reverse(sides)
	}
	for _, side := range sides {
		side()
	}
	return l
}

func (a *arena) settledByThree(plan lossPlan, loses func(*arena, *redis.Client)) []int {
	a.Helper()
	a.empty()
	var workers sync.WaitGroup
	kills := make([]func() time.Time, lostProcesses)
	for i := range kills {
		workers.Go(func() {
			kills[i] = a.startVictim(victim{DSN: a.dsn, Redis: a.redis.Addr(), Entries: lostSlots, Takes: lostTakes})
		})
	}
	workers.Wait()
	recorder := a.newLibrary(0, nil)
	defer recorder.close()
	began := time.Now().Add(plan.records)
	a.recordFor(plan, recorder, began)
	if plan == wholeLoss && !time.Now().Before(began) {
		a.Fatal("recording took too long")
	}
	var epoch int64
	a.must(a.admin.QueryRowContext(a.Context(), "SELECT MIN(next_at) FROM common_process_log").Scan(&epoch))
	time.Sleep(time.Until(began.Add(time.Duration(plan.at) * time.Second)))
	client := a.client()
	defer client.Close()
	loses(a, client)
	time.Sleep(time.Until(began.Add(time.Duration(plan.seconds+1) * time.Second)))
	for _, kill := range kills {
		kill()
	}
	a.must(client.ConfigSet(a.Context(), "maxmemory", "0").Err())
	a.must(client.Do(a.Context(), "ACL", "SETUSER", "default", "+@all").Err())
	return a.settledPerSecond(epoch, plan.seconds)
}

func (a *arena) recordFor(plan lossPlan, recorder *library, began time.Time) {
	a.Helper()
	const batch = 40
	record := func(n int, at time.Time) {
		_, err := recorder.record(a.Context(), n, compensator.Options{Delay: time.Until(at)})
		a.must(err)
	}
	for n := 0; n < plan.due; n += batch {
		record(batch, began)
	}
	for n := 0; n < plan.later; n += batch {
		record(batch, began.Add(time.Duration(n)*lostTakes/(lostProcesses*lostSlots)))
	}
}

func (a *arena) settledPerSecond(epoch int64, seconds int) []int {
	a.Helper()
	perSecond := make([]int, seconds)
	rows, err := a.admin.QueryContext(a.Context(), "SELECT FLOOR((TIMESTAMPDIFF(MICROSECOND,'1970-01-01',updated_at)/1000-?)/1000) AS s, COUNT(*), SUM(version<>2) FROM common_process_log WHERE state=1 GROUP BY s", epoch)
	a.must(err)
	defer rows.Close()
	for rows.Next() {
		var second, n, again int
		a.must(rows.Scan(&second, &n, &again))
		if again > 0 {
			a.Errorf("%d entries ran more than once", again)
		}
		if second >= 0 && second < seconds {
			perSecond[second] += n
		}
	}
	a.must(rows.Err())
	return perSecond
}
