package shop

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// Look holds the parts of the page in which the two sales differ.
type Look struct {
	English, Chinese Intro
	Types            []string                      // business types of entries
	OnTheWay         func(ctx context.Context) int // number of tickets that the database does not know yet; nil means none
}

// Intro is the heading of a page.
type Intro struct{ Title, Text string }

// In returns the introduction in a language.
func (l Look) In(lang string) Intro {
	if lang == Chinese.Lang {
		return l.Chinese
	}
	return l.English
}

const longestSeen = 2 * time.Second

type overview struct {
	Goods           string
	Initial         int
	Redis           Counted
	Filled          bool // whether Redis holds a filled counter
	Database        int  // pieces
	Waiting         int  // tickets without an order: living tickets, and the sale's OnTheWay
	Open, Paid      int
	Closed, Undone  int
	Entries         []entriesOfType
	AnswersASecond  int
	P99             time.Duration
	Faults          []fault
	RedisDown       bool
	RedisBar, DBBar int // of 1000
}

type entriesOfType struct {
	Type                                                    string
	Waiting, Sent, Done, Undoing, Undone, Cancelled, Person int
}

type fault struct {
	What string
	At   time.Time
}

func (s *Shop) overview(ctx context.Context) (o overview, err error) {
	o.Goods = s.Goods
	for _, step := range []func(context.Context, *overview) error{s.seeGoods, s.seeOrders, s.seeEntries, s.seeFaults} {
		if err := step(ctx, &o); err != nil {
			return o, err
		}
	}
	s.seeRedis(ctx, &o)
	if s.Look.OnTheWay != nil {
		o.Waiting += s.Look.OnTheWay(ctx)
	}
	o.DBBar = share(o.Database, o.Initial)
	o.RedisBar = share(o.Redis.Stock, o.Initial)
	return o, nil
}

func share(n, of int) int { return 1000 * n / max(1, of) }

func (s *Shop) seeGoods(ctx context.Context, o *overview) error {
	var edition string
	err := s.DB.QueryRowContext(ctx, s.SQL(`SELECT initial, stock, edition FROM shop_goods WHERE goods = ?`), s.Goods).Scan(&o.Initial, &o.Database, &edition)
	if errors.Is(err, sql.ErrNoRows) {
		return ErrNoGoods
	}
	return err
}

// seeRedis shows as much as it can read, because the page must also work while Redis is down.
func (s *Shop) seeRedis(ctx context.Context, o *overview) {
	ctx, cancel := context.WithTimeout(ctx, longestSeen)
	defer cancel()
	var errs [3]error
	var edition string
	var answers spread
	o.Redis, errs[0] = s.Counter.Read(ctx, s.Goods)
	edition, errs[1] = s.Counter.Edition(ctx, s.Goods)
	answers, errs[2] = lastSecond(ctx, s.Counter)
	o.Filled, o.RedisDown = edition != "", errors.Join(errs[:]...) != nil
	o.AnswersASecond, o.P99 = answers.count(), answers.percentile(0.99).Round(100*time.Microsecond)
}

func (s *Shop) seeOrders(ctx context.Context, o *overview) error {
	return s.DB.QueryRowContext(ctx, s.SQL(`SELECT
		COALESCE(SUM(o.state = 'open'), 0), COALESCE(SUM(o.state = 'paid'), 0), COALESCE(SUM(o.state = 'closed'), 0),
		COALESCE(SUM(o.id IS NULL AND t.living = 1), 0), COALESCE(SUM(o.id IS NULL AND t.living IS NULL), 0)
		FROM shop_tickets t LEFT JOIN shop_orders o ON o.ticket = t.ticket WHERE t.goods = ?`), s.Goods).
		Scan(&o.Open, &o.Paid, &o.Closed, &o.Waiting, &o.Undone)
}

func (s *Shop) seeEntries(ctx context.Context, o *overview) error {
	counts, err := admin.Of(s.Log).Count(ctx, admin.CountFilter{})
	byType := make(map[string]*entriesOfType)
	for _, name := range s.Look.Types {
		byType[name] = &entriesOfType{Type: name}
	}
	for _, c := range counts {
		if row := byType[c.BusinessType]; row != nil {
			row.add(c.State, c.N)
		}
	}
	for _, name := range s.Look.Types {
		o.Entries = append(o.Entries, *byType[name])
	}
	return err
}

func (e *entriesOfType) add(state compensator.State, n int) {
	place := map[compensator.State]*int{
		compensator.Pending: &e.Waiting, compensator.Retrying: &e.Sent, compensator.Succeeded: &e.Done, compensator.Compensating: &e.Undoing,
		compensator.Compensated: &e.Undone, compensator.Cancelled: &e.Cancelled, compensator.Dead: &e.Person, compensator.SettledManually: &e.Done,
	}[state]
	if place != nil {
		*place += n
	}
}

func (s *Shop) seeFaults(ctx context.Context, o *overview) error {
	return EachRow(ctx, s.DB, s.SQL(`SELECT what, struck_at FROM shop_faults ORDER BY id DESC LIMIT 8`), func(scan func(...any) error) error {
		var f fault
		err := scan(&f.What, &f.At)
		o.Faults = append(o.Faults, f)
		return err
	})
}
