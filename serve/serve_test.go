package serve_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/compensatortest"
	"github.com/compensator-go/compensator/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitTimeout = time.Minute

func newLog(t *testing.T) *compensator.Compensator {
	t.Helper()
	c, err := compensator.New(t.Context(), compensator.Config{Store: compensatortest.NewMemoryStore(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func server(t *testing.T, handler http.HandlerFunc) (s serve.Server, url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serve.Server{Server: &http.Server{Handler: handler, ReadHeaderTimeout: waitTimeout}, Listener: listener}, "http://" + listener.Addr().String()
}

// The status is 0 if there was no answer.
func get(url string) (status int) {
	return getBy(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, url)
}

func getBy(client *http.Client, url string) (status int) {
	answer, err := client.Get(url)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

func run(ctx context.Context, log serve.Log, cfg serve.Config) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, cfg, log) }()
	return ended
}

func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(waitTimeout):
		require.Fail(t, "nothing came")
	}
	return v
}

func closed(t *testing.T, s serve.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, waitTimeout, time.Millisecond)
}

// A running request records an entry after the stop has begun, and waits until the entry has run.
func TestRequestUnderWayIsRecordedAndWhatIsDueRunsWhileTheProgramStops(t *testing.T) {
	t.Parallel()
	c := newLog(t)
	ran := make(chan struct{})
	closing, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, int) error { close(ran); return nil }, nil)
	require.NoError(t, err)
	entered, release := make(chan struct{}), make(chan struct{})
	s, url := server(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		assert.NoError(t, c.InTx(r.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			_, err := closing.Record(ctx, tx, 42, compensator.Options{})
			return err
		}))
		select {
		case <-ran:
			w.WriteHeader(http.StatusNoContent)
		case <-r.Context().Done():
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := run(ctx, c, serve.Config{Servers: []serve.Server{s}, StopTimeout: waitTimeout / 2})
	status := make(chan int, 1)
	go func() { status <- get(url) }()
	next(t, entered)
	cancel()
	closed(t, s)
	close(release)
	require.Equal(t, http.StatusNoContent, next(t, status))
	require.NoError(t, next(t, ended))
	entries := compensatortest.RequireRecorded(t, c, "close_order", 1)
	require.Equal(t, compensator.Succeeded, entries[0].State)
	require.False(t, c.Health(t.Context()).Running)
}

// Failure: F81
func TestNothingRunsWhereAnAddressCannotBeHad(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(nil)
	defer taken.Close()
	s, _ := server(t, nil)
	began := func(context.Context) error { return errors.New("it ran") }
	err := serve.Run(t.Context(), serve.Config{Servers: []serve.Server{s}, Consumers: []func(context.Context) error{began},
		Inside: []serve.Server{{Server: &http.Server{Addr: taken.Listener.Addr().String()}}}}, logFunc(began))
	require.ErrorContains(t, err, taken.Listener.Addr().String())
	require.NotContains(t, err.Error(), "it ran")
	closed(t, s)
}

type logFunc func(context.Context) error

func (run logFunc) Run(ctx context.Context) error { return run(ctx) }

type failing struct{ net.Listener }

var errBroken = errors.New("too many open files")

func (f failing) Accept() (net.Conn, error) { return nil, errBroken }

// Failure: F81
func TestWhatIsMissingIsNamedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	s, _ := server(t, nil)
	err := serve.Run(t.Context(), serve.Config{Servers: []serve.Server{{}, s}, Inside: []serve.Server{{}},
		Consumers: []func(context.Context) error{nil}, StopTimeout: -1}, nil)
	for _, field := range []string{"log 1 of 1 is nil", "Servers[0] has no Server", "Inside[0] has no Server", "Consumers[0] is nil", "StopTimeout: -1ns is less than 0"} {
		assert.ErrorContains(t, err, "serve: "+field)
	}
	closed(t, s)
}

// Failure: F81
func TestServerThatCannotServeIsNamedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	began := logFunc(func(context.Context) error { return errors.New("it ran") })
	twice, _ := server(t, nil)
	bare, _ := server(t, nil)
	bare.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	err := serve.Run(t.Context(), serve.Config{Servers: []serve.Server{twice, bare}, Inside: []serve.Server{{}, {Server: twice.Server}, twice}}, began)
	for _, field := range []string{"Servers[1]: its TLSConfig has no certificate", "Inside[0] has no Server", "Inside[1] is the Server of Servers[0]", "Inside[2] is the Server of Servers[0]"} {
		assert.ErrorContains(t, err, "serve: "+field)
	}
	require.NotContains(t, err.Error(), "it ran")
	closed(t, twice)

	// The package net/http sets a TLSConfig on a server that has served.
	again, url := server(t, func(http.ResponseWriter, *http.Request) {})
	require.NoError(t, serve.Run(t.Context(), serve.Config{Servers: []serve.Server{again}}, logFunc(func(context.Context) error { get(url); return nil })))
	again.Listener = nil
	err = serve.Run(t.Context(), serve.Config{Servers: []serve.Server{again}}, began)
	require.ErrorContains(t, err, "serve: Servers[0]: its TLSConfig has no certificate, ")
	require.ErrorContains(t, err, "a Server serves once")
}

// Failure: F81
func TestLogThatIsMissingIsNamedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	began := logFunc(func(context.Context) error { return errors.New("it ran") })
	require.EqualError(t, serve.Run(t.Context(), serve.Config{}, began, nil), "serve: log 2 of 2 is nil")
	require.EqualError(t, serve.Run(t.Context(), serve.Config{}), "serve: no log is given")
}

type named struct {
	logFunc
	name string
}

func (n named) Name() string { return n.name }

// Each log takes its own time to stop.
// Failure: F81
func TestFirstLogThatFailsStopsTheOthersAndEachErrorNamesItsLog(t *testing.T) {
	t.Parallel()
	stopping, release := make(chan struct{}, 2), make(chan struct{})
	until := func(err error) logFunc {
		return func(ctx context.Context) error {
			<-ctx.Done()
			stopping <- struct{}{}
			<-release
			return err
		}
	}
	errLost, errLate := errors.New("no connection"), errors.New("handlers still run")
	ended := make(chan error, 1)
	go func() {
		ended <- serve.Run(t.Context(), serve.Config{},
			named{until(nil), "orders"}, named{func(context.Context) error { return errLost }, "stock"}, until(errLate))
	}()
	next(t, stopping)
	next(t, stopping) // The logs 1 and 3 were asked to stop, and neither of them has ended yet.
	select {
	case err := <-ended:
		require.Fail(t, "Run did not wait for the logs", "%v", err)
	default:
	}
	close(release)
	err := next(t, ended)
	require.ErrorIs(t, err, errLost)
	require.ErrorIs(t, err, errLate)
	require.EqualError(t, err, "serve: log stock: no connection\nserve: log 3 of 3: handlers still run")
}

// The test ends the context while a request is running. This request records into both logs.
func TestSeveralLogsWorkUntilRequestsHaveEnded(t *testing.T) {
	t.Parallel()
	ran := make(chan string, 2)
	var logs []*compensator.Compensator
	var types []*compensator.Type[int]
	for _, name := range []string{"orders", "stock"} {
		c := newLog(t)
		typ, err := compensator.Handle(t.Context(), c, name, func(context.Context, *compensator.Entry, int) error { ran <- name; return nil }, nil)
		require.NoError(t, err)
		logs, types = append(logs, c), append(types, typ)
	}
	entered, release, status := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	s, url := server(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		for i, c := range logs {
			assert.NoError(t, c.InTx(r.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
				_, err := types[i].Record(ctx, tx, 42, compensator.Options{})
				return err
			}))
		}
		assert.ElementsMatch(t, []string{"orders", "stock"}, []string{<-ran, <-ran})
		w.WriteHeader(http.StatusNoContent)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve.Run(ctx, serve.Config{Servers: []serve.Server{s}}, logs[0], logs[1]) }()
	go func() { status <- get(url) }()
	next(t, entered)
	stop()
	closed(t, s)
	close(release)
	require.Equal(t, http.StatusNoContent, next(t, status))
	require.NoError(t, next(t, ended))
	for _, c := range logs {
		require.False(t, c.Health(t.Context()).Running)
	}
}

func TestCertificateMayComeFromAnyOfItsPlaces(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(nil)
	t.Cleanup(known.Close)
	own := known.TLS.Certificates[0]
	for name, from := range map[string]*tls.Config{
		"Certificates":   {Certificates: []tls.Certificate{own}},
		"GetCertificate": {GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil }},
		"GetConfigForClient": {GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{own}}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
			s.TLSConfig = from
			status := make(chan int, 1)
			log := logFunc(func(context.Context) error {
				status <- getBy(known.Client(), strings.Replace(url, "http", "https", 1))
				return nil
			})
			require.NoError(t, serve.Run(t.Context(), serve.Config{Servers: []serve.Server{s}}, log))
			require.Equal(t, http.StatusNoContent, next(t, status))
		})
	}
}

func TestWhateverFailsEndsTheProgramInTheSameOrder(t *testing.T) {
	t.Parallel()
	errConsumer := errors.New("no such queue")
	for name, fault := range map[string]struct {
		put  func(t *testing.T, c *compensator.Compensator, cfg *serve.Config)
		want error
	}{
		"a server": {func(t *testing.T, _ *compensator.Compensator, cfg *serve.Config) {
			bad, _ := server(t, nil)
			bad.Listener = failing{bad.Listener}
			cfg.Inside = append(cfg.Inside, bad)
		}, errBroken},
		"a consumer": {func(_ *testing.T, _ *compensator.Compensator, cfg *serve.Config) {
			cfg.Consumers = append(cfg.Consumers, func(context.Context) error { return errConsumer })
		}, errConsumer},
		"the log": {func(t *testing.T, c *compensator.Compensator, _ *serve.Config) {
			compensatortest.Run(t, c)
			require.Eventually(t, func() bool { return c.Health(t.Context()).Running }, waitTimeout, time.Millisecond)
		}, compensator.ErrRunning},
		"a server that somebody else shuts down": {func(_ *testing.T, _ *compensator.Compensator, cfg *serve.Config) {
			cfg.Consumers = append(cfg.Consumers, func(ctx context.Context) error {
				assert.NoError(t, cfg.Servers[0].Shutdown(ctx))
				<-ctx.Done()
				return ctx.Err()
			})
		}, nil},
		"a consumer that ends by itself": {func(_ *testing.T, _ *compensator.Compensator, cfg *serve.Config) {
			cfg.Consumers = append(cfg.Consumers, func(context.Context) error { return nil })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newLog(t)
			_, err := compensator.Handle(t.Context(), c, "close_order", func(context.Context, *compensator.Entry, int) error { return nil }, nil)
			require.NoError(t, err)
			s, _ := server(t, nil)
			cfg := serve.Config{Servers: []serve.Server{s}, Consumers: []func(context.Context) error{func(ctx context.Context) error { <-ctx.Done(); return nil }}}
			fault.put(t, c, &cfg)
			require.ErrorIs(t, next(t, run(t.Context(), c, cfg)), fault.want)
			closed(t, s)
			if fault.want != compensator.ErrRunning {
				require.False(t, c.Health(t.Context()).Running)
			}
		})
	}
}

func TestProgramStopsFromTheOutsideIn(t *testing.T) {
	t.Parallel()
	var order []string // needs no mutex, because each step ends before the next one begins
	inside, probe := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	outside, _ := server(t, nil)
	var working atomic.Bool
	begun := make(chan struct{})
	log := logFunc(func(ctx context.Context) error {
		working.Store(true)
		close(begun)
		<-ctx.Done()
		order = append(order, fmt.Sprint("log ends, inside answers ", get(probe)))
		working.Store(false)
		return nil
	})
	consume := func(ctx context.Context) error {
		<-ctx.Done()
		closed(t, outside) // Wait until the consumer is being stopped.
		order = append(order, fmt.Sprint("consumer ends, log at work ", working.Load()))
		return ctx.Err() // After the stop was requested, this error is not reported.
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := run(ctx, log, serve.Config{Servers: []serve.Server{outside}, Consumers: []func(context.Context) error{consume}, Inside: []serve.Server{inside}, StopTimeout: waitTimeout})
	next(t, begun)
	cancel()
	require.NoError(t, next(t, ended))
	require.Equal(t, []string{"consumer ends, log at work true", "log ends, inside answers 200"}, order)
	closed(t, inside)
}

func TestStopThatComesTwiceIsOne(t *testing.T) {
	t.Parallel()
	c := newLog(t)
	entered, release := make(chan struct{}), make(chan struct{})
	s, url := server(t, func(http.ResponseWriter, *http.Request) { close(entered); <-release })
	ctx, cancel := context.WithCancel(t.Context())
	ended := run(ctx, c, serve.Config{Servers: []serve.Server{s}, StopTimeout: waitTimeout})
	status := make(chan int, 1)
	go func() { status <- get(url) }()
	next(t, entered)
	cancel()
	closed(t, s)
	cancel()
	shut := make(chan error, 1)
	go func() { shut <- s.Shutdown(context.Background()) }()
	close(release)
	require.Equal(t, http.StatusOK, next(t, status), "the request under way has its answer")
	require.NoError(t, next(t, ended))
	require.NoError(t, next(t, shut))
}

// The function ConnContext of this server does not return. net/http calls it in the loop that accepts connections, and
// Shutdown and Close both wait for this loop.
// Failure: F81
func TestServerThatDoesNotEndIsNamedAndHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	entered, let, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	hangs, url := server(t, func(http.ResponseWriter, *http.Request) {})
	hangs.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		once.Do(func() { close(entered); <-let; close(left) })
		return ctx
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := run(ctx, newLog(t), serve.Config{Inside: []serve.Server{hangs}})
	asked := make(chan struct{})
	go func() { defer close(asked); get(url) }()
	next(t, entered)
	cancel()
	var err error
	select {
	case err = <-ended:
	case <-time.After(waitTimeout):
		close(let)
		require.Fail(t, "Run waits for it")
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, hangs.Listener.Addr().String()+" has not ended")
	closed(t, hangs)
	close(let)
	next(t, left)
	next(t, asked)
}

// Failure: F81
func TestWhatOutlastsTheStopIsNamedAndTheLogEnds(t *testing.T) {
	t.Parallel()
	c := newLog(t)
	entered, gone := make(chan struct{}), make(chan struct{})
	s, url := server(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(gone)
	})
	let, left := make(chan struct{}), make(chan struct{})
	hangs := func(context.Context) error { defer close(left); <-let; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ended := run(ctx, c, serve.Config{Servers: []serve.Server{s}, Consumers: []func(context.Context) error{hangs}, StopTimeout: 50 * time.Millisecond})
	go get(url)
	next(t, entered)
	cancel()
	err := next(t, ended)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "cut off")
	require.ErrorContains(t, err, "consumer 1 of 1 has not ended")
	require.False(t, c.Health(t.Context()).Running)
	next(t, gone)
	close(let)
	next(t, left)
}
