package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/examples/internal/crowd"
	"github.com/compensator-go/compensator/examples/internal/day"
	"github.com/compensator-go/compensator/examples/internal/servers"
	"github.com/compensator-go/compensator/examples/internal/shop"
	"github.com/compensator-go/compensator/examples/internal/visit"
	"github.com/compensator-go/compensator/internal/faultproxy"
	"github.com/compensator-go/compensator/internal/testservers"
)

// world has a running service. The field other holds a second sale on the same servers. Nobody calls the method Run of
// the second sale, so this sale does only what the test calls.
type world struct {
	*visit.Visit
	service service
	other   *sale
}

func throwAway(t testing.TB) servers.Servers {
	t.Helper()
	rdb := testservers.SharedRedis(t)
	s := servers.Servers{DSN: testservers.Database(t), Redis: rdb.Addr(), AMQP: testservers.SharedRabbitMQ(t).URL(), Name: rdb.Prefix(t)}
	t.Cleanup(func() { require.NoError(t, s.OnBroker(servers.Delete(s.Queue(orderQueue)))) })
	return s
}

func newWorld(t *testing.T, change func(*settings)) *world {
	t.Helper()
	s := service{Service: shop.Service{Servers: throwAway(t)}, settings: quick}
	s.Address = "127.0.0.1:0"
	s.Fail, s.Hopeless, s.Window = 0, 0, time.Hour
	change(&s.settings)
	w := &world{service: s}
	w.Visit = visit.Start(t, w.service.run)
	w.openOther(s.Servers)
	return w
}

func (w *world) openOther(on servers.Servers) {
	db, err := on.OpenDB(16)
	require.NoError(w.T, err)
	c := &shop.Counter{Redis: on.OpenRedis(), Name: on.Name}
	other, err := newSale(w.T.Context(), w.service.settings, on, db, c)
	require.NoError(w.T, err)
	w.T.Cleanup(func() {
		other.End()
		require.NoError(w.T, errors.Join(c.Redis.Close(), db.Close()))
	})
	w.DB, w.other = db, other
}

func (w *world) awaitStock(pieces int) {
	w.T.Helper()
	require.Eventually(w.T, func() bool {
		n, failed := w.other.counter.Read(w.T.Context(), "phone")
		open, err := w.other.counter.open(w.T.Context(), "phone")
		return assert.NoError(w.T, errors.Join(failed, err)) && n.Stock == pieces && open == 0 && w.Count(`SELECT stock FROM seckill_goods`) == pieces &&
			len(n.Buyers) == w.Count(`SELECT COUNT(*) FROM seckill_tickets WHERE living = 1`)
	}, time.Minute, 20*time.Millisecond, "%d pieces in both places", pieces)
}

func TestEachBuyerGetsOnePieceAndNoMoreAreSoldThanExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 2 })
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
	w.Refused(w.Buy("cid"), http.StatusConflict, "sold_out")
	w.Refused(w.Buy("ben"), http.StatusConflict, "bought_already")
	w.Await("ann", shop.StateOpen)
	w.Await("ben", shop.StateOpen)
	w.awaitStock(0)
	w.Refused(w.State("cid"), http.StatusNotFound, "no_such_order")
}

func TestBadRequestIsExplainedAndLosesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 2 })
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
	for body, wanted := range map[string]crowd.Answered{
		``:                                {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"ben"`:                  {Status: http.StatusBadRequest, Code: "bad_request"},
		`[1]`:                             {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":7,"goods":"phone"}`:     {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"ben"}`:                 {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"","goods":"phone"}`:    {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"b n","goods":"phone"}`: {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"ben","goods":"phone","pieces":2}`:                            {Status: http.StatusBadRequest, Code: "bad_request"},
		`{"buyer":"ben","goods":"` + strings.Repeat("x", shop.MostBytes) + `"}`: {Status: http.StatusRequestEntityTooLarge, Code: "too_large"},
		`{"buyer":"ben","goods":"moon"}`:                                        {Status: http.StatusNotFound, Code: "no_such_goods"},
	} {
		require.Equal(t, wanted, w.Ask(http.MethodPost, "/seckill", body), "%.60s", body)
	}
	w.Refused(w.Ask(http.MethodPost, "/orders/99/pay", ""), http.StatusNotFound, "no_such_order")
	w.Refused(w.Ask(http.MethodPost, "/orders/x/pay", ""), http.StatusNotFound, "no_such_order")
	w.Refused(w.Ask(http.MethodPost, "/goods/moon/rebuild", ""), http.StatusNotFound, "no_such_goods")
	w.Refused(w.Ask(http.MethodPost, "/crowd", `{"buyers":5001}`), http.StatusBadRequest, "bad_request")
	w.awaitStock(1)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckill_tickets`))
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
}

func TestOneCrowdAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 3 })
	require.Eventually(t, func() bool { return w.Ask(http.MethodPost, "/crowd", `{"buyers":100}`).Status == http.StatusAccepted }, time.Minute, time.Millisecond)
	w.Refused(w.Ask(http.MethodPost, "/crowd", `{"buyers":100}`), http.StatusConflict, "crowded")
	w.awaitStock(0)
	require.Equal(t, 3, w.Count(`SELECT COUNT(*) FROM seckill_tickets WHERE buyer LIKE 'guest-%'`))
}

func TestUnpaidOrderGivesItsPieceBackInBothPlacesAndTheBuyerMayBuyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock, s.Window = 1, 500*time.Millisecond })
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
	w := newWorld(t, func(s *settings) { s.Stock, s.Window = 2, 2*time.Second })
	w.Buy("ann")
	order := w.Await("ann", shop.StateOpen)
	for range 2 { // A buyer who got no answer to the payment pays again. Both payments must succeed.
		require.Equal(t, http.StatusOK, w.Ask(http.MethodPost, fmt.Sprintf("/orders/%d/pay", order.Order), "").Status)
	}
	w.Buy("ben")
	w.Await("ben", shop.StateClosed) // ben's order came due after ann's.
	require.Equal(t, shop.StatePaid, w.State("ann").State)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckill_log WHERE business_type = 'close_order' AND state = ?`, compensator.Cancelled))
	w.awaitStock(1)
}

func TestTicketThatBecomesNoOrderIsUndoneInBothPlaces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock, s.Hopeless, s.Most, s.Resend = 1, 1, 2, 100*time.Millisecond })
	w.Buy("ann")
	w.Await("ann", "given back")
	w.awaitStock(1)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckill_log WHERE business_type = 'create_order' AND state = ? AND process_count = 3`, compensator.Compensated))
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckill_orders`))
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
}

func TestMessageThatComesTwiceOrTooLateMakesNoSecondOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 1 })
	answer := w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	sold := shop.Ticket{ID: answer.Ticket, Goods: "phone", Buyer: "ann"}
	require.ErrorIs(t, w.other.create(t.Context(), sold), compensator.ErrAlreadySucceeded)
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckill_orders`))
}

func TestMalformedMessageWaitsForAPersonAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock, s.workers = 2, 1 })
	require.NoError(t, w.service.OnBroker(func(channel *amqp091.Channel) error {
		return channel.Publish("", w.service.Queue(orderQueue), false, false, amqp091.Publishing{MessageId: "poison", Body: []byte("{{no order}")})
	}))
	w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	require.Eventually(t, func() bool {
		return w.Count(`SELECT COUNT(*) FROM seckill_log WHERE business_type = 'redelivered_order' AND state = ? AND last_error LIKE '%invalid character%' AND content LIKE ?`,
			compensator.Dead, "%"+base64.StdEncoding.EncodeToString([]byte("{{no order}"))+"%") == 1
	}, time.Minute, 20*time.Millisecond)
	w.awaitStock(1)
	waiting, err := w.service.Waiting(w.service.Queue(orderQueue))
	require.NoError(t, err)
	require.Zero(t, waiting)
}

// Purchases must succeed while the broker refuses messages, and no attempt may be counted.
func TestBrokerThatRefusesMessagesLosesNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock, s.Most = 3, 1 })
	queue := w.service.Queue(orderQueue)
	refusing := func(channel *amqp091.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, amqp091.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
		return err
	}
	full := func(channel *amqp091.Channel) error {
		return channel.Publish("", queue, true, false, amqp091.Publishing{Body: []byte("{{in the way}")})
	}
	// The test deletes the queue, declares a queue that refuses messages, and fills it. The service's consumer may
	// declare the deleted queue first. Then the declaration of the test fails, and the test repeats all three steps.
	require.Eventually(t, func() bool {
		return w.service.OnBroker(servers.Delete(queue), refusing, full) == nil
	}, time.Minute, time.Millisecond)
	for _, buyer := range []string{"ann", "ben"} {
		require.Equal(t, http.StatusAccepted, w.Buy(buyer).Status)
	}
	require.Eventually(t, func() bool {
		return w.Count(`SELECT COUNT(*) FROM seckill_log WHERE business_type = 'create_order' AND last_error LIKE '%nack%'`) == 2
	}, time.Minute, 20*time.Millisecond)
	require.Zero(t, w.Count(`SELECT SUM(process_count) FROM seckill_log WHERE business_type = 'create_order'`))
	require.Equal(t, "accepted", w.State("ann").State)
	require.NoError(t, w.service.OnBroker(servers.Delete(queue)))
	for _, buyer := range []string{"ann", "ben"} {
		w.Await(buyer, shop.StateOpen)
	}
	w.awaitStock(1)
}

func TestServiceThatCannotStartSaysWhy(t *testing.T) {
	on := throwAway(t)
	config, err := mysql.ParseDSN(on.DSN)
	require.NoError(t, err)
	config.User, config.Passwd = "nobody", "secret"
	broker, err := url.Parse(on.AMQP)
	require.NoError(t, err)
	broker.User = url.UserPassword("nobody", "secret")
	for _, c := range []struct {
		dsn, redis, amqp string
		arguments        []string
		want             []string
	}{
		{want: []string{"set MYSQL_DSN", "set REDIS_ADDR", "set AMQP_URL"}},
		{dsn: "nonsense", redis: on.Redis, amqp: on.AMQP, want: []string{"MYSQL_DSN"}},
		{dsn: config.FormatDSN(), redis: on.Redis, amqp: on.AMQP, want: []string{"Access denied for user 'nobody'"}},
		{dsn: on.DSN, redis: on.Redis, amqp: broker.String(), want: []string{"AMQP_URL", "username or password not allowed"}},
		{dsn: on.DSN, redis: on.Redis, amqp: on.AMQP, arguments: []string{"-goods", "a b", "-workers", "0"}, want: []string{"-goods", "-workers"}},
	} {
		t.Setenv("MYSQL_DSN", c.dsn)
		t.Setenv("REDIS_ADDR", c.redis)
		t.Setenv("AMQP_URL", c.amqp)
		err := runService(t.Context(), append(c.arguments, "-addr", "127.0.0.1:0", "-name", on.Name), io.Discard)
		for _, wanted := range c.want {
			require.ErrorContains(t, err, wanted)
		}
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestPurchaseThatTheDatabaseRefusesGivesItsPieceBack(t *testing.T) {
	t.Parallel()
	// Other processes give a ticket back only when it is older than the setting abandon. During this test, no ticket
	// becomes an hour old, so only the failed purchase itself gives its ticket back.
	w := newWorld(t, func(s *settings) { s.Stock, s.abandon = 1, time.Hour })
	require.Equal(t, http.StatusOK, w.Ask(http.MethodPost, "/goods/phone/rebuild", "").Status)
	w.Exec(`RENAME TABLE seckill_tickets TO seckill_tickets_away`)
	w.Refused(w.Buy("ben"), http.StatusServiceUnavailable, "try_again")
	w.Exec(`RENAME TABLE seckill_tickets_away TO seckill_tickets`)
	w.awaitStock(1)
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
}

// The answer to a COMMIT is lost. The COMMIT has happened in one case, and has not happened in the other.
func TestPurchaseWhoseCommitIsUnknownIsResolved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault faultproxy.Fault
		sold  int
	}{"request lost": {faultproxy.DropRequest, 0}, "answer lost": {faultproxy.DropReply, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(s *settings) { s.Stock, s.abandon = 2, time.Hour })
			config, err := mysql.ParseDSN(w.service.DSN)
			require.NoError(t, err)
			proxy, err := faultproxy.NewMySQL(config.Addr)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, proxy.Close()) })
			config.Addr = proxy.Addr()
			cut := w.service.Servers
			cut.DSN = config.FormatDSN()
			w.openOther(cut)
			w.Buy("zoe") // The counter is now filled.
			trap := proxy.Arm(faultproxy.Rule{Match: faultproxy.Commit(), Fault: c.fault, Nth: 1})
			_, err = w.other.Sell(t.Context(), shop.Purchase{Buyer: "ann", Goods: "phone"})
			if c.sold == 1 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, shop.ErrBusy)
			}
			require.Equal(t, 1, trap.Fired())
			require.Equal(t, c.sold, w.Count(`SELECT COUNT(*) FROM seckill_tickets WHERE buyer = 'ann'`))
			w.awaitStock(1 - c.sold)
		})
	}
}

// The method take leaves a ticket as if its process had died right after the script.
func (w *world) take(buyer string) shop.Ticket {
	w.T.Helper()
	require.NoError(w.T, w.other.Rebuild(w.T.Context(), "phone", ""))
	t := shop.NewTicket(shop.Purchase{Buyer: buyer, Goods: "phone"})
	require.NoError(w.T, w.other.counter.take(w.T.Context(), &t))
	return t
}

func TestTicketOfAProcessThatDiedBeforeItsTransactionIsGivenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 1 })
	lost := w.take("ann")
	w.awaitStock(1)
	require.Error(t, w.other.sell(t.Context(), lost), "a slow process is too late")
	w.awaitStock(1)
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckill_tickets`))
	require.Equal(t, http.StatusAccepted, w.Buy("ann").Status)
}

func TestTicketOfAProcessThatDiedAfterItsTransactionIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 1 })
	sold := w.take("ann")
	require.NoError(t, w.other.sell(t.Context(), sold))
	w.awaitStock(0)
	require.Equal(t, sold.ID, w.Await("ann", shop.StateOpen).Ticket)
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")
}

func TestCounterThatIsLostIsFilledFromTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 3 })
	w.Buy("ann")
	require.NoError(t, w.service.Forget(t.Context()))
	w.Refused(w.Buy("ann"), http.StatusConflict, "bought_already")
	require.Equal(t, http.StatusAccepted, w.Buy("ben").Status)
	w.awaitStock(1)
	require.NoError(t, w.service.Forget(t.Context()))
	w.awaitStock(1)
	answer := w.Ask(http.MethodPost, "/goods/phone/rebuild", "")
	require.Equal(t, http.StatusOK, answer.Status)
}

// Redis returns to an older state: it has too many pieces and does not know a buyer.
func TestWrongCounterIsFoundByThePurchaseThatItAccepts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 1 })
	w.Buy("ann")
	keys := w.other.counter.Keys("phone")
	for _, buyer := range []string{"ann", "ben"} {
		require.NoError(t, w.other.counter.Redis.HSet(t.Context(), keys[0], "stock", 5).Err())
		require.NoError(t, w.other.counter.Redis.HDel(t.Context(), keys[1], "ann").Err())
		code := map[string]string{"ann": "bought_already", "ben": "sold_out"}[buyer]
		w.Refused(w.Buy(buyer), http.StatusConflict, code)
		w.awaitStock(0)
	}
}

// Redis loses a taken ticket, and the new counter does not include it.
func TestTicketOfAnEarlierEditionIsNotSold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 2 })
	previous := w.take("ann")
	require.NoError(t, w.service.Forget(t.Context()))
	w.awaitStock(2)
	require.ErrorIs(t, w.other.sell(t.Context(), previous), shop.ErrStale)
	w.awaitStock(2)
	require.NoError(t, w.other.counter.GiveBack(t.Context(), previous))
	w.awaitStock(2)
}

func TestCounterFilledUnderLoadSellsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 500 })
	var buyers sync.WaitGroup
	var sold atomic.Int64
	for i := range 40 {
		buyers.Go(func() {
			for n := range 10 {
				_, err := w.other.Sell(w.T.Context(), shop.Purchase{Buyer: fmt.Sprintf("b%d-%d", i, n), Goods: "phone"})
				if err == nil {
					sold.Add(1)
				} else {
					assert.ErrorIs(w.T, err, shop.ErrBusy)
				}
			}
		})
	}
	bought := make(chan struct{})
	go func() { buyers.Wait(); close(bought) }()
	for everybody := false; !everybody; {
		// Delete the counter again and again, but only until 200 pieces are sold. So purchases also run while the
		// counter is filled for the last time.
		if sold.Load() < 200 {
			require.NoError(t, w.other.counter.Redis.Unlink(t.Context(), w.other.counter.Keys("phone")...).Err())
		}
		select {
		case <-bought:
			everybody = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	living := w.Count(`SELECT COUNT(*) FROM seckill_tickets WHERE living = 1`)
	require.EqualValues(t, sold.Load(), living)
	w.awaitStock(500 - living)
}

func TestSceneRemovesOnlyItsOwnData(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 2 })
	w.Buy("ann")
	w.Await("ann", shop.StateOpen)
	rdb := w.other.counter.Redis
	theirs := "x" + w.service.Name + ":key"
	w.Exec(`CREATE TABLE theirs (n INT)`)
	require.NoError(t, rdb.Set(t.Context(), theirs, 1, time.Minute).Err())
	require.NoError(t, w.service.OnBroker(servers.Declare("x"+w.service.Queue(orderQueue))))
	require.NoError(t, w.Stop())
	s := scene{Day: day.Day{Servers: w.service.Servers, Tables: tables, DB: w.DB}}
	s.prepare()
	require.NoError(t, s.Empty(t.Context()))
	require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()`))
	left, err := rdb.Keys(t.Context(), "*"+w.service.Name+"*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{theirs}, left)
	_, err = w.service.Waiting("x" + w.service.Queue(orderQueue))
	require.NoError(t, err, "the other queue still exists")
	_, err = w.service.Waiting(w.service.Queue(orderQueue))
	require.Error(t, err, "the scene's queue is gone")
	require.NoError(t, w.service.OnBroker(servers.Delete("x"+w.service.Queue(orderQueue))))
}

func TestStoppingServiceFinishesItsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *settings) { s.Stock = 1000 })
	watched, err := http.Get("http://" + w.Address + "/live") // An open page does not keep the service from stopping.
	require.NoError(t, err)
	defer watched.Body.Close()
	accepted := w.StopAmidBuyers(20)
	for _, ticket := range accepted {
		require.Equal(t, 1, w.Count(`SELECT COUNT(*) FROM seckill_tickets WHERE ticket = ?`, ticket))
	}
	require.Equal(t, len(accepted), w.Count(`SELECT COUNT(*) FROM seckill_tickets`), "every ticket was answered")
	require.Zero(t, w.Count(`SELECT COUNT(*) FROM seckill_log WHERE lease_until > 0`), "no entry is held")
	w.awaitStock(1000 - len(accepted))
}
