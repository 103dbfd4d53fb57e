// Package serve runs a program around the log and stops its parts in the right order. It is a separate package so that
// programs without it do not link net/http.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/compensator-go/compensator/internal/usererr"
)

// Log is the log to run. *compensator.Compensator implements it.
type Log interface{ Run(context.Context) error }

// Server answers requests. It uses TLS if its TLSConfig is set, with the certificates in it. A Server can be used in
// one Run only, as any http.Server. Set ReadTimeout and IdleTimeout. Without them a client that sends a body slowly
// holds its connection and a goroutine forever.
type Server struct {
	*http.Server
	Listener net.Listener // nil: listen on Addr, as ListenAndServe does. Run closes it
}

// Config lists what runs beside the log. The zero value lists nothing.
type Config struct {
	Servers   []Server                          // servers whose requests may record
	Consumers []func(ctx context.Context) error // consumers of messages, until ctx ends: Run of an Intake, or Run of a relay's Consumer
	Inside    []Server                          // servers of admin pages, probes and metrics. They answer until everything else has ended

	// StopTimeout is how long Run waits for running requests and consumers together. Choose it longer than the stop
	// timeout of each consumer. Default 10 s, and 65 s with Consumers, because an Intake takes up to 30 s by default,
	// and a relay's Consumer twice as long. After that the log's Run takes up to its Config.StopTimeout plus a third.
	// Allow the sum of both before the program is killed.
	StopTimeout time.Duration
}

// Run runs log and the parts in cfg until ctx ends, or until any of them ends. Then it stops them from the outside to
// the inside. It waits for each step before the next one:
//
//   - Servers take no new requests and finish the running ones. The contexts of consumers end. After this step nothing
//     is recorded any more. Entries are claimed and run during this step.
//   - The context of log.Run ends. Handlers end, and their outcomes are stored.
//   - The servers in Inside have one second for their requests.
//
// Run returns all errors joined, or nil if everything ended in order. Use ctx.Err() to find out whether the stop was
// asked for. A consumer that returns nil, or a server that was shut down, also ends Run. An invalid field, or an
// address that cannot be listened on, is returned before anything has run.
//
// A part that needs longer than StopTimeout is an error. Run then closes the connections of requests, which ends their
// contexts. It leaves a consumer running. One second later it also leaves a server whose ConnContext does not return.
// The contexts of requests do not end with ctx. Run does not wait for hijacked connections, for example WebSockets: see
// http.Server.RegisterOnShutdown.
//
// Run closes nothing that log uses. After Run call Close of the log, then shut down the telemetry providers, then close
// the database and Redis. Run handles no signals. Pass a ctx of signal.NotifyContext, for example. That swallows a
// second signal until its stop is called. If a second signal must end the program at once, use context.AfterFunc(ctx,
// stop). Nothing is lost then: running entries run again elsewhere when their leases end. Several Runs may run at the
// same time, each with its own servers and log.
func Run(ctx context.Context, log Log, cfg Config) error {
	kept := context.WithoutCancel(ctx)
	cfg.Servers, cfg.Inside = slices.Clone(cfg.Servers), slices.Clone(cfg.Inside) // do not change the caller's slices
	err := cfg.validate(log)
	if err == nil {
		err = cfg.listen(kept)
	}
	if err != nil {
		cfg.hangUp()
		return err
	}
	life, end := context.WithCancel(ctx)
	defer end()
	receiving, stopReceiving := context.WithCancel(kept)
	defer stopReceiving()
	working, stopWorking := context.WithCancel(kept)
	defer stopWorking()

	work := start(end, "the log", func() error { return log.Run(working) })
	inside, outside := serveAll(end, cfg.Inside), serveAll(end, cfg.Servers)
	for i, consume := range cfg.Consumers {
		outside = append(outside, start(end, fmt.Sprintf("consumer %d of %d", i+1, len(cfg.Consumers)), func() error {
			err := consume(receiving)
			if receiving.Err() != nil && usererr.Is(err, receiving.Err()) {
				return nil // the stop was asked for
			}
			return usererr.Safe(err)
		}))
	}

	<-life.Done()
	stopReceiving()
	err = stop(kept, cfg.stopTimeout(), outside)
	stopWorking()
	<-work.done // log.Run has its own time limit
	err = errors.Join(err, work.failure())
	return errors.Join(err, stop(kept, insideStop, inside))
}

const (
	defaultStop  = 10 * time.Second // longer than the 5 s for which net/http treats a silent new connection as busy
	consumerStop = 65 * time.Second
	insideStop   = time.Second
	cutOff       = time.Second // time for closing connections
)

func (cfg Config) stopTimeout() time.Duration {
	switch {
	case cfg.StopTimeout > 0:
		return cfg.StopTimeout
	case len(cfg.Consumers) > 0:
		return consumerStop
	}
	return defaultStop
}

// validate returns everything that is wrong.
func (cfg Config) validate(log Log) error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("serve: "+format, args...))
		}
	}
	refuse(log == nil, "log is nil")
	refuse(cfg.StopTimeout < 0, "StopTimeout: %v is less than 0", cfg.StopTimeout)
	first := map[*http.Server]string{} // where each server is listed first
	for i, s := range slices.Concat(cfg.Servers, cfg.Inside) {
		field := fmt.Sprintf("Servers[%d]", i)
		if i >= len(cfg.Servers) {
			field = fmt.Sprintf("Inside[%d]", i-len(cfg.Servers))
		}
		refuse(s.Server == nil, "%s has no Server", field)
		if s.Server == nil {
			continue
		}
		other, twice := first[s.Server]
		refuse(twice, "%s is the Server of %s", field, other)
		first[s.Server] = cmp.Or(other, field)
		refuse(!s.certified(), "%s: its TLSConfig has no certificate, none of Certificates, GetCertificate and GetConfigForClient"+
			" (net/http leaves such a one in a Server that has served: a Server serves once)", field)
	}
	for i, consume := range cfg.Consumers {
		refuse(consume == nil, "Consumers[%d] is nil", i)
	}
	return errors.Join(errs...)
}

// part is one thing that runs until it is asked to stop.
type part struct {
	name   string
	server *http.Server // nil: the part stops by its context
	done   chan struct{}
	err    error // set once done is closed
}

// start runs a part, and calls end when the part has returned.
func start(end func(), name string, run func() error) *part {
	p := &part{name: name, done: make(chan struct{})}
	go func() {
		defer end()
		defer close(p.done)
		p.err = run()
	}()
	return p
}

// failure returns the error of a part that has ended.
func (p *part) failure() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("serve: %s: %w", p.name, p.err)
}

// stop asks a part to stop and waits for it until ctx ends. ctx has a deadline.
func (p *part) stop(ctx context.Context) error {
	told := make(chan error, 1)
	go func() { told <- p.tell(ctx) }()
	late := ctx
	if p.server != nil { // requests have until that deadline, and are then cut off
		deadline, _ := ctx.Deadline()
		after, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(cutOff))
		defer cancel()
		late = after
	}
	select {
	case err := <-told:
		return err
	case <-late.Done():
		return fmt.Errorf("serve: %s has not ended: %w", p.name, late.Err())
	}
}

// tell ends a server's requests, by force once ctx has ended, and waits for the part. Shutdown and Close wait for Serve
// to return in spite of their context, and therefore for the user's code in it.
func (p *part) tell(ctx context.Context) (err error) {
	if p.server != nil {
		if err = p.server.Shutdown(ctx); err != nil {
			_ = p.server.Close()
			err = fmt.Errorf("serve: requests at %s were cut off: %w", p.name, err)
		}
	}
	<-p.done // the server has closed its listener
	return errors.Join(p.failure(), err)
}

// stop stops several parts at the same time.
func stop(ctx context.Context, timeout time.Duration, parts []*part) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() { errs[i] = p.stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// listen opens the listeners that the caller has not given.
func (cfg Config) listen(ctx context.Context) (err error) {
	for _, servers := range [][]Server{cfg.Servers, cfg.Inside} {
		for i, s := range servers {
			if s.Listener != nil {
				continue
			}
			l, failed := new(net.ListenConfig).Listen(ctx, "tcp", s.addr())
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("serve: %w", failed))
				continue
			}
			servers[i].Listener = l
		}
	}
	return err
}

// hangUp closes all listeners.
func (cfg Config) hangUp() {
	for _, s := range slices.Concat(cfg.Servers, cfg.Inside) {
		if s.Listener != nil {
			_ = s.Listener.Close()
		}
	}
}

// certified reports whether net/http can serve with the TLSConfig alone, or without TLS.
func (s Server) certified() bool {
	own := s.TLSConfig
	return own == nil || len(own.Certificates) > 0 || own.GetCertificate != nil || own.GetConfigForClient != nil
}

func (s Server) addr() string {
	if s.TLSConfig != nil {
		return cmp.Or(s.Addr, ":https")
	}
	return cmp.Or(s.Addr, ":http")
}

func serveAll(end func(), servers []Server) (parts []*part) {
	for _, s := range servers {
		p := start(end, s.Listener.Addr().String(), s.serve)
		p.server = s.Server
		parts = append(parts, p)
	}
	return parts
}

// serve answers requests until the server is shut down.
func (s Server) serve() (err error) {
	defer s.Listener.Close() // also if the server never used it
	if s.TLSConfig != nil {
		err = s.ServeTLS(s.Listener, "", "")
	} else {
		err = s.Serve(s.Listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
