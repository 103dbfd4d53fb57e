// Package serve runs a program around the log, and stops it in the right order. It is a room of its own so that nobody else
// links net/http.
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

// Log is a *compensator.Compensator.
type Log interface{ Run(context.Context) error }

// Server answers requests, over TLS where its TLSConfig is set, with the certificates in it. As any http.Server it serves
// once, in one Run. Set its ReadTimeout and IdleTimeout: without them a client that sends a body slowly holds its connection, and
// a goroutine, for ever.
type Server struct {
	*http.Server
	Listener net.Listener // nil: one on Addr, as ListenAndServe has it. Run closes it
}

// Config is what runs beside the log's own Run. The zero value: nothing does.
type Config struct {
	Servers   []Server                          // for requests that may record
	Consumers []func(ctx context.Context) error // of messages, until ctx ends: the Run of an Intake, of a relay's Consumer
	Inside    []Server                          // operators' pages, probes, metrics: they answer until all else has ended

	// StopTimeout is how long requests and consumers under way are waited for, all of them together: longer than consumers have
	// for their own. Default 10 s, with Consumers 65 s: an Intake takes 30 s by default, a relay's Consumer as long twice. The log's
	// Run then takes its own Config.StopTimeout and a third: whoever kills the program waits for longer than both.
	StopTimeout time.Duration
}

// Run runs log and what cfg names until ctx ends, or any of them does, for whatever reason. Then it stops from the outside in,
// and waits for each step before the next:
//
//   - Servers take no new requests and finish those under way, consumers' contexts end: nothing is recorded any more. All the
//     while entries are claimed and run.
//   - The context of log's Run ends: handlers end, and outcomes are stored.
//   - What is Inside has a second for its requests.
//
// All that went wrong is joined in the error; nil: all has ended in good order. ctx.Err() tells whether that was asked for: a
// consumer that returns nil by itself, or a server that somebody shuts down, ends Run as well. A field of cfg that is wrong, or an
// address that cannot be had, is returned before anything has run. What outlasts StopTimeout is an error: requests' connections are closed,
// which ends their contexts, and a consumer is left running; so is, a second later, a server whose ConnContext does not return. Requests' contexts do not end with ctx, nor are hijacked
// connections, as of WebSockets, waited for: see http.Server.RegisterOnShutdown.
//
// It closes nothing that log stands on: Close it next, then shut down telemetry's providers, then close its database and Redis.
//
// Run knows no signals: ctx is signal.NotifyContext's, say, which swallows a second one until its stop is called. Where that
// should end the program at once, have context.AfterFunc(ctx, stop) call it: nothing is lost, entries under way run again
// elsewhere when their leases end. Many may Run, each with servers and a log of its own.
func Run(ctx context.Context, log Log, cfg Config) error {
	kept := context.WithoutCancel(ctx)
	cfg.Servers, cfg.Inside = slices.Clone(cfg.Servers), slices.Clone(cfg.Inside) // the caller's are his
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
				return nil // it was told
			}
			return err
		}))
	}

	<-life.Done()
	stopReceiving()
	err = stop(kept, cfg.stopTimeout(), outside)
	stopWorking()
	<-work.done // it has a bound of its own
	err = errors.Join(err, work.failure())
	return errors.Join(err, stop(kept, insideStop, inside))
}

const (
	defaultStop  = 10 * time.Second // longer than the 5 s for which net/http takes a connection that has sent nothing for a busy one
	consumerStop = 65 * time.Second
	insideStop   = time.Second
	cutOff       = time.Second // what closing connections may take
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

// validate names what is wrong.
func (cfg Config) validate(log Log) error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("serve: "+format, args...))
		}
	}
	refuse(log == nil, "log is nil")
	refuse(cfg.StopTimeout < 0, "StopTimeout: %v is less than 0", cfg.StopTimeout)
	first := map[*http.Server]string{} // where each stands
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

// part is what runs until it is told to stop.
type part struct {
	name   string
	server *http.Server // nil: it has been told
	done   chan struct{}
	err    error // once done
}

// start runs a part, and calls end when it has returned.
func start(end func(), name string, run func() error) *part {
	p := &part{name: name, done: make(chan struct{})}
	go func() {
		defer end()
		defer close(p.done)
		p.err = run()
	}()
	return p
}

// failure is why a part that is done has ended.
func (p *part) failure() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("serve: %s: %w", p.name, p.err)
}

// stop tells a part and waits for it, for as long as ctx, which has a deadline, allows.
func (p *part) stop(ctx context.Context) error {
	told := make(chan error, 1)
	go func() { told <- p.tell(ctx) }()
	late := ctx
	if p.server != nil { // its requests have until then, and are cut off after it
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

// tell ends a server's requests, by force once ctx has ended, and waits for the part. Shutdown and Close wait for Serve to return whatever
// the context, and so for the user's code in it.
func (p *part) tell(ctx context.Context) (err error) {
	if p.server != nil {
		if err = p.server.Shutdown(ctx); err != nil {
			_ = p.server.Close()
			err = fmt.Errorf("serve: requests at %s were cut off: %w", p.name, err)
		}
	}
	<-p.done // a server's listener is closed
	return errors.Join(p.failure(), err)
}

// stop stops parts beside each other.
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

// listen opens the listeners that are not given.
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

// hangUp closes what listens.
func (cfg Config) hangUp() {
	for _, s := range slices.Concat(cfg.Servers, cfg.Inside) {
		if s.Listener != nil {
			_ = s.Listener.Close()
		}
	}
}

// certified reports whether net/http would serve it by its TLSConfig alone, or plain.
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

// serve answers requests until the server is shut down, by whomever.
func (s Server) serve() (err error) {
	defer s.Listener.Close() // also of one that never got to it
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
