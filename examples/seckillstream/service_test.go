package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/examples/internal/visit"
	"github.com/compensator-go/compensator/internal/testservers"
)

// world has a running service. The field other holds a second sale on the same servers. Nobody calls the method Run of
// the second sale, so this sale does only what the test calls.
type world struct {
	*visit.Visit
	service service
	other   *sale
}

func newWorld(t *testing.T, change func(*shop.Settings)) *world {
	t.Helper()
	rdb := testservers.SharedRedis(t)
	on := servers.Servers{DSN: testservers.Database(t), Redis: rdb.Addr(), Name: rdb.Prefix(t)}
	w := &world{service: service{Service: shop.Service{Servers: on, Address: "127.0.0.1:0"}, Settings: quick}}
	w.service.Fail, w.service.Hopeless, w.service.Window = 0, 0, time.Hour
	change(&w.service.Settings)
	w.Visit = visit.Start(t, w.service.run)
	db, err := on.OpenDB(16)
	require.NoError(t, err)
	c := &shop.Counter{Redis: on.OpenRedis(), Name: on.Name}
	w.other, err = newSale(t.Context(), w.service.Settings, db, c)
	require.NoError(t, err)
	w.DB = db
	t.Cleanup(func() {
		w.other.End()
		require.NoError(t, errors.Join(c.Redis.Close(), db.Close()))
	})
	return w
}

func (w *world) awaitStock(pieces int) {
	w.T.Helper()
	require.Eventually(w.T, func() bool { return w.stock() == pieces }, time.Minute, 20*time.Millisecond, "%d pieces in both places", pieces)
}

// stock returns -1 while Redis and the database differ, a message is on its way, or a query fails. It must not end the
// test, because it runs in other goroutines than the test's.
func (w *world) stock() int {
	n, err1 := w.other.Counter.Read(w.T.Context(), "phone")
	waiting, err2 := w.other.Counter.Redis.XLen(w.T.Context(), streamKey(w.other.Counter, "phone")).Result()
	var stock, living int
	err3 := w.DB.QueryRow(`SELECT stock, (SELECT COUNT(*) FROM seckillstream_tickets WHERE living = 1) FROM seckillstream_goods`).Scan(&stock, &living)
	if errors.Join(err1, err2, err3) != nil || waiting > 0 || n.Stock != stock || len(n.Buyers) != living {
		return -1
	}
	return n.Stock
}

func (w *world) add(values ...string) {
	w.T.Helper()
	require.NoError(w.T, w.other.Counter.Redis.XAdd(w.T.Context(), &redis.XAddArgs{Stream: streamKey(w.other.Counter, "phone"), Values: values}).Err())
}

func (w *world) holdUp() func() {
	w.T.Helper()
	tx, err := w.DB.Begin()
	require.NoError(w.T, err)
	_, err = tx.Exec(`SELECT stock FROM seckillstream_goods FOR UPDATE`)
	require.NoError(w.T, err)
	return func() { require.NoError(w.T, tx.Rollback()) }
}

func TestEachBuyerGetsOnePieceAndNoMoreAreSoldThanExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 2 })
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
	w.Refused(w.Buy("cid"), http.StatusConflict, "sold_out")
	w.Await("ann", shop.StateOpen)
	w.Await("ben", shop.StateOpen)
	w.awaitStock(0)
	w.Refused(w.State("cid"), http.StatusNotFound, "no_such_order")
}

func TestBadRequestIsExplainedAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 2 })
	w.Exec(`INSERT INTO seckillstream_goods (goods, initial, stock) VALUES ('lamp', 1, 1)`)
	for body, wanted := range map[string]crowd.Answered{
		``:                               {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":7,"goods":"phone"}`:    {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"","goods":"phone"}`:   {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"ben","goods":"moon"}`: {Status: http.StatusNotFound, Code: "no_such_goods"},
		`{"buyer":"ben","goods":"lamp"}`: {Status: http.StatusNotFound, Code: "no_such_goods"}, // Another service reads the stream of the product "lamp".
		`{"buyer":"ben","goods":"` + strings.Repeat("x", shop.MostBytes) + `"}`: {Status: http.StatusRequestEntityTooLarge, Code: "too_large"},
	} {
		require.Equal(t, wanted, w.Ask(http.MethodPost, "/seckill", body), "%.60s", body)
	}
	w.Refused(w.Ask(http.MethodPost, "/orders/99/pay", ""), http.StatusNotFound, "no_such_order")
	w.Refused(w.Ask(http.MethodPost, "/goods/moon/rebuild", ""), http.StatusNotFound, "no_such_goods")
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
	w.Await("ben", shop.StateOpen)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckillstream_tickets`))
}

func TestUnpaidOrderGivesItsPieceBackInBothPlacesAndTheBuyerMayBuyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock, s.Window = 1, 500*time.Millisecond })
	first := w.Buy("ann")
	order := w.Await("ann", shop.StateClosed)
	require.Equal(t, first.Ticket, order.Ticket)
	w.Refused(w.Ask(http.MethodPost, fmt.Sprintf("/orders/%d/pay", order.Order), ""), http.StatusConflict, "order_closed")
	w.awaitStock(1)
	again := w.Buy("ann")
	require.Equal(t, http.StatusAccepted, again.Status)
	require.NotEqual(t, first.Ticket, again.Ticket)
}

func TestPaidOrderIsNotClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock, s.Window = 2, 2*time.Second })
	w.Buy("ann")
	order := w.Await("ann", shop.StateOpen)
	for range 2 { // A buyer who got no answer to the payment pays again. Both payments must succeed.
		require.Equal(t, http.StatusOK, w.Ask(http.MethodPost, fmt.Sprintf("/orders/%d/pay", order.Order), "").Status)
	}
	w.Buy("ben")
	w.Await("ben", shop.StateClosed) // ben's order came due after ann's.
	require.Eventually(t, func() bool {
		return w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE business_type = 'close_order' AND state = ?`, compensator.Succeeded) == 2
	}, time.Minute, 20*time.Millisecond)
	require.Equal(t, shop.StatePaid, w.State("ann").State)
	w.awaitStock(1)
}

func TestTicketThatBecomesNoOrderIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock, s.Hopeless, s.Most, s.Resend = 1, 1, 2, 100*time.Millisecond })
	w.Buy("ann")
	w.Await("ann", "given back")
	w.awaitStock(1)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE business_type = 'order_aside' AND state = ?`, compensator.Compensated))
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckillstream_orders`))
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
}

func TestMessageThatFailedIsTriedAgainByTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock, s.Resend, s.Most = 3, 100*time.Millisecond, 10 })
	w.Exec(`RENAME TABLE seckillstream_orders TO seckillstream_orders_away`)
	w.Buy("ann")
	require.Eventually(t, func() bool {
		return w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE business_type = 'order_aside' AND process_count > 0`) == 1
	}, time.Minute, 20*time.Millisecond)
	w.Exec(`RENAME TABLE seckillstream_orders_away TO seckillstream_orders`)
	w.Await("ann", shop.StateOpen)
	w.awaitStock(2)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckillstream_orders`))
}

func TestMalformedMessageWaitsForAPersonAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 3 })
	w.Buy("ann")
	w.add("order", "{{no order}")
	w.add("ticket", "T", "goods", "moon", "buyer", "eve")
	w.Buy("ben")
	w.Await("ann", shop.StateOpen)
	w.Await("ben", shop.StateOpen)
	w.awaitStock(1)
	require.Eventually(t, func() bool {
		return w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE business_type = 'order_aside' AND state = ? AND last_error <> ''`, compensator.Dead) == 2
	}, time.Minute, 20*time.Millisecond)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE business_type = 'order_aside' AND content LIKE '%{{no order}%'`), "the original message")
}

// Lost messages become no orders, and their buyers must be able to buy again.
func TestBuyerOfAnOrderThatRedisLosesMayBuyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 3 })
	w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	goOn := w.holdUp()
	w.Buy("ben") // The service has read this message and waits for the database.
	require.Eventually(t, func() bool { return w.unread() == 0 }, time.Minute, 5*time.Millisecond)
	lost := w.Buy("cid")
	require.Equal(t, http.StatusAccepted, lost.Status)
	require.Equal(t, "accepted", w.State("cid").State)
	require.NoError(t, w.service.Forget(t.Context()))
	w.Refused(w.State("cid"), http.StatusNotFound, "no_such_order")
	goOn()
	require.Eventually(t, func() bool { return w.Buy("cid").Status == http.StatusAccepted }, time.Minute, 20*time.Millisecond)
	w.Await("cid", shop.StateOpen)
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckillstream_tickets WHERE ticket = ?`, lost.Ticket))
	w.awaitStock(3 - w.Count(`SELECT COUNT(*) FROM seckillstream_tickets WHERE living = 1`))
}

func (w *world) unread() int {
	stats, err := w.other.orders.Stats(w.T.Context())
	require.NoError(w.T, err)
	return int(stats.Lag)
}

// A message may come from an earlier edition of the counter. The counter was then filled again without the message's
// ticket, so the database must not make an order of this ticket.
func TestTicketOfAnEarlierEditionIsVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 2 })
	w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	w.add("ticket", "T1", "goods", "phone", "buyer", "ben", "edition", "AN EARLIER ONE")
	w.Await("ben", "given back")
	w.awaitStock(1)
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
	w.Await("ben", shop.StateOpen)
	w.awaitStock(0)
}

// Redis returns to an older state: it has too many pieces and does not know a buyer.
func TestWrongCounterIsFoundByTheOrderThatItAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 2 })
	w.Buy("ann")
	w.awaitStock(1)
	keys := w.other.Counter.Keys("phone")
	require.NoError(t, w.other.Counter.Redis.HDel(t.Context(), keys[1], "ann").Err())
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
	w.awaitStock(1)
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")

	w.Buy("ben")
	w.awaitStock(0)
	require.NoError(t, w.other.Counter.Redis.HSet(t.Context(), keys[0], "stock", 5).Err())
	require.Equal(t, http.StatusAccepted, w.Buy("cid").Status)
	w.awaitStock(0)
	w.Refused(w.Buy("cid"), http.StatusConflict, "sold_out")
	require.Equal(t, "given back", w.State("cid").State)
	require.Equal(t, 2, w.Count(`SELECT COUNT(*) FROM seckillstream_orders`))
}

// An accepted ticket that Redis lost has no order.
func TestCounterFilledUnderLoadSellsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock, s.Window = 500, time.Hour })
	var buyers sync.WaitGroup
	var accepted atomic.Int64
	for i := range 20 {
		buyers.Go(func() {
			for n := range 20 {
				_, err := w.other.Sell(w.T.Context(), shop.Purchase{Buyer: fmt.Sprintf("b%d-%d", i, n), Goods: "phone"})
				if err == nil {
					accepted.Add(1)
				} else {
					assert.ErrorIs(w.T, err, shop.ErrBusy)
				}
			}
		})
	}
	bought := make(chan struct{})
	go func() { buyers.Wait(); close(bought) }()
	// Remove all keys in one command, so that no counter is filled in between.
	keys := append(w.other.Counter.Keys("phone"), streamKey(w.other.Counter, "phone"))
	for everybody := false; !everybody; {
		if accepted.Load() < 200 {
			require.NoError(t, w.other.Counter.Redis.Unlink(t.Context(), keys...).Err())
		}
		select {
		case <-bought:
			everybody = true
		case <-time.After(5 * time.Millisecond):
		}
	}
	var living int
	// Wait, because the intake may still store a batch that it read before the stream was lost.
	require.Eventually(t, func() bool {
		living = w.Count(`SELECT COUNT(*) FROM seckillstream_tickets WHERE living = 1`)
		return w.stock() == 500-living && living == w.Count(`SELECT COUNT(*) FROM seckillstream_orders`)
	}, time.Minute, 20*time.Millisecond, "both places have the same stock, and every served buyer has an order")
	require.NotZero(t, living)
	require.LessOrEqual(t, int64(living), accepted.Load())
}

func TestServiceThatCannotStartSaysWhy(t *testing.T) {
	rdb, dsn := testservers.SharedRedis(t), testservers.Database(t)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = "nobody", "secret"
	for _, c := range []struct {
		dsn, redis string
		arguments  []string
		want       []string
	}{
		{want: []string{"set MYSQL_DSN", "set REDIS_ADDR"}},
		{dsn: "nonsense", redis: rdb.Addr(), want: []string{"MYSQL_DSN"}},
		{dsn: config.FormatDSN(), redis: rdb.Addr(), want: []string{"Access denied for user 'nobody'"}},
		{dsn: dsn, redis: rdb.Addr(), arguments: []string{"-window", "0"}, want: []string{"-window"}},
	} {
		t.Setenv("MYSQL_DSN", c.dsn)
		t.Setenv("REDIS_ADDR", c.redis)
		err := runService(t.Context(), append(c.arguments, "-addr", "127.0.0.1:0", "-name", rdb.Prefix(t)), io.Discard)
		for _, wanted := range c.want {
			require.ErrorContains(t, err, wanted)
		}
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestSceneRemovesOnlyItsOwnData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 2 })
	w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	rdb := w.other.Counter.Redis
	theirs := "x" + w.service.Name + ":key"
	w.Exec(`CREATE TABLE theirs (n INT)`)
	require.NoError(t, rdb.Set(t.Context(), theirs, 1, time.Minute).Err())
	require.NoError(t, w.Stop())
	s := scene{Day: day.Day{Servers: w.service.Servers, Tables: tables, DB: w.DB}}
	require.NoError(t, s.Empty(t.Context()))
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()`))
	left, err := rdb.Keys(t.Context(), "*"+w.service.Name+"*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{theirs}, left)
}

func TestStoppingServiceFinishesItsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *shop.Settings) { s.Stock = 1000 })
	accepted := w.StopAmidBuyers(10)
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckillstream_log WHERE lease_until > 0`), "no entry is held")
	next := visit.Start(t, w.service.run)
	w.Address = next.Address
	w.awaitStock(1000 - len(accepted))
	require.Len(t, accepted, w.Count(`SELECT COUNT(*) FROM seckillstream_orders`))
}
