// Package serve runs one or several logs together with servers and consumers, and stops them in the right order. It is
// a separate package so that programs without it do not link net/http.
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

// Log is a log to run. *compensator.Compensator implements it. If a Log also has a method Name() string, as a
// Compensator does, errors name the log.
type Log interface {
	// Run works until the context ends. Then it stops within a time limit of its own. It returns nil after a normal
	// stop.
	Run(context.Context) error
}

// Server answers requests. If its TLSConfig is set, it uses TLS with the certificates in TLSConfig. As with any
// http.Server, a Server can be used in one Run only. Set ReadTimeout and IdleTimeout. Without them, a slow client holds
// its connection and a goroutine forever.
type Server struct {
	*http.Server
	Listener net.Listener // listener that Run uses and closes; nil: Run listens on Addr, as ListenAndServe does
}

// Config lists the HTTP servers and message consumers that Run runs with the logs. All fields are optional.
type Config struct {
	Servers   []Server                          // servers whose requests may record entries
	Consumers []func(ctx context.Context) error // consumers of messages, for example Run of an Intake, or Run of a relay's Consumer; each runs until ctx ends
	Inside    []Server                          // servers of admin pages, probes and metrics, which answer until everything else has ended

	// StopTimeout is how long Run waits for running requests and consumers together. Set StopTimeout longer than the
	// stop timeout of each consumer. The default is 10 s. With Consumers the default is 65 s, because a relay's
	// Consumer may take up to 60 s with its own defaults.
	//
	// After requests and consumers have ended, all logs stop at the same time. The Run of each log takes up to 4/3 of
	// its own compensator.Config.StopTimeout. So before a kill, your platform must wait for
	// StopTimeout plus 4/3 of the longest compensator.Config.StopTimeout.
	StopTimeout time.Duration
}

// Run runs logs and the parts in cfg until ctx ends, or until a log or a part ends. Then it stops them in three steps.
// Each step waits for the step before it:
//
//   - Servers take no new requests and finish the running requests. The contexts of consumers end. After this step
//     nothing is recorded any more. During this step the logs still claim and run entries.
//   - The contexts of the method Log.Run end, for all logs at the same time. Handlers end, and their outcomes are
//     stored. Each log has its own StopTimeout.
//   - The servers in Inside have one second for their requests.
//
// Run returns all errors joined, or nil if everything ended in order. errors.Is and errors.As find the error of a part.
// With several logs, an error names its log by the log's name, or else by its position. To find out whether ctx caused
// the end, use ctx.Err(). A consumer that returns nil, or a server that was shut down, also ends Run. If a field is
// invalid, if there is no log, or if an address cannot be listened on, Run returns the error before it starts anything.
//
// After StopTimeout, Run stops waiting for consumers. It closes the connections of running requests, which ends their
// contexts, and waits one second more for their servers. A part that has not ended by then is an error of Run. The end
// of ctx alone does not end the contexts of requests. Run does not wait for hijacked connections, for example
// WebSockets: see http.Server.RegisterOnShutdown.
//
// Run recovers no panic of a consumer, so such a panic ends the program.
//
// Run closes nothing that the logs use. After Run call Close of each log, then shut down the telemetry providers, then
// close the databases and Redis.
//
// Run handles no signals. With a ctx of signal.NotifyContext, a second signal has no effect until you call its stop. If
// a second signal must end the program at once, use context.AfterFunc(ctx, stop). Entries that run at the second signal
// run again in another process when their leases end.
//
// Several Runs may run at the same time, each with its own servers and logs.
func Run(ctx context.Context, cfg Config, logs ...Log) error {
	values := context.WithoutCancel(ctx)
	cfg.Servers, cfg.Inside = slices.Clone(cfg.Servers), slices.Clone(cfg.Inside) // Clone the slices, because listen changes their elements.
	err := cfg.validate(logs)
	if err == nil {
		err = cfg.listen(values)
	}
	if err != nil {
		cfg.hangUp()
		return err
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	receiving, stopReceiving := context.WithCancel(values)
	defer stopReceiving()
	working, stopWorking := context.WithCancel(values)
	defer stopWorking()

	work := make([]*part, len(logs))
	for i, log := range logs {
		work[i] = start(cancel, nameOf(i, logs), func() error { return log.Run(working) })
	}
	innerParts, outerParts := serveAll(cancel, cfg.Inside), serveAll(cancel, cfg.Servers)
	for i, consume := range cfg.Consumers {
		outerParts = append(outerParts, start(cancel, fmt.Sprintf("consumer %d of %d", i+1, len(cfg.Consumers)), func() error {
			err := consume(receiving)
			if receiving.Err() != nil && usererr.Is(err, receiving.Err()) {
				return nil // Run has asked the consumer to stop, so this error is expected.
			}
			return usererr.Safe(err)
		}))
	}

	<-life.Done()
	stopReceiving()
	err = stopAll(values, cfg.stopTimeout(), outerParts)
	stopWorking()
	for _, w := range work {
		<-w.finished // Wait without a limit, because the Run of a log limits its own stop.
		err = errors.Join(err, w.failure())
	}
	return errors.Join(err, stopAll(values, insideStop, innerParts))
}

func nameOf(i int, logs []Log) string {
	named, ok := logs[i].(interface{ Name() string })
	switch {
	case len(logs) == 1:
		return "the log"
	case ok && named.Name() != "":
		return "log " + named.Name()
	}
	return fmt.Sprintf("log %d of %d", i+1, len(logs))
}

const (
	defaultStop  = 10 * time.Second // net/http treats a new connection without a request as busy for 5 s, so the default is longer
	consumerStop = 65 * time.Second
	insideStop   = time.Second
	cutOff       = time.Second // how long Run waits for a server after the server's connections were closed
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

func (cfg Config) validate(logs []Log) error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("serve: "+format, args...))
		}
	}
	refuse(len(logs) == 0, "no log is given")
	for i, log := range logs {
		refuse(log == nil, "log %d of %d is nil", i+1, len(logs))
	}
	refuse(cfg.StopTimeout < 0, "StopTimeout: %v is less than 0", cfg.StopTimeout)
	firstUse := map[*http.Server]string{} // where in cfg each server is listed first, to find servers that are listed twice
	for i, s := range slices.Concat(cfg.Servers, cfg.Inside) {
		field := fmt.Sprintf("Servers[%d]", i)
		if i >= len(cfg.Servers) {
			field = fmt.Sprintf("Inside[%d]", i-len(cfg.Servers))
		}
		refuse(s.Server == nil, "%s has no Server", field)
		if s.Server == nil {
			continue
		}
		otherName, isDuplicate := firstUse[s.Server]
		refuse(isDuplicate, "%s is the Server of %s", field, otherName)
		firstUse[s.Server] = cmp.Or(otherName, field)
		refuse(!s.certified(), "%s: its TLSConfig has no certificate, none of Certificates, GetCertificate and GetConfigForClient"+
			" (net/http leaves such a one in a Server that has served: a Server serves once)", field)
	}
	for i, consume := range cfg.Consumers {
		refuse(consume == nil, "Consumers[%d] is nil", i)
	}
	return errors.Join(errs...)
}

type part struct {
	name     string
	server   *http.Server // nil if the part stops when its context ends
	finished chan struct{}
	err      error // error of the part; may be read after finished is closed
}

// start runs a part of the service: it calls the function run in a new goroutine. After run has returned, the goroutine
// calls the function end.
func start(end func(), name string, run func() error) *part {
	p := &part{name: name, finished: make(chan struct{})}
	go func() {
		defer end()
		defer close(p.finished)
		p.err = run()
	}()
	return p
}

func (p *part) failure() error {
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("serve: %s: %w", p.name, p.err)
}

// stop needs a ctx with a deadline.
func (p *part) stop(ctx context.Context) error {
	notified := make(chan error, 1)
	go func() { notified <- p.requestStop(ctx) }()
	lateCtx := ctx
	if p.server != nil { // Requests may run until the deadline of ctx. Then their connections are closed.
		deadline, _ := ctx.Deadline()
		graceCtx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(cutOff))
		defer cancel()
		lateCtx = graceCtx
	}
	select {
	case err := <-notified:
		return err
	case <-lateCtx.Done():
		return fmt.Errorf("serve: %s has not ended: %w", p.name, lateCtx.Err())
	}
}

// requestStop may take longer than ctx, because Shutdown and Close wait for Serve, which calls the user's code.
func (p *part) requestStop(ctx context.Context) (err error) {
	if p.server != nil {
		if err = p.server.Shutdown(ctx); err != nil {
			_ = p.server.Close()
			err = fmt.Errorf("serve: requests at %s were cut off: %w", p.name, err)
		}
	}
	<-p.finished // For a server, this is closed soon, because the server has closed its listener.
	return errors.Join(p.failure(), err)
}

func stopAll(ctx context.Context, timeout time.Duration, parts []*part) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, p := range parts {
		running.Go(func() { errs[i] = p.stop(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (cfg Config) listen(ctx context.Context) (err error) {
	for _, servers := range [][]Server{cfg.Servers, cfg.Inside} {
		for i, s := range servers {
			if s.Listener != nil {
				continue
			}
			l, listenErr := new(net.ListenConfig).Listen(ctx, "tcp", s.addr())
			if listenErr != nil {
				err = errors.Join(err, fmt.Errorf("serve: %w", listenErr))
				continue
			}
			servers[i].Listener = l
		}
	}
	return err
}

func (cfg Config) hangUp() {
	for _, s := range slices.Concat(cfg.Servers, cfg.Inside) {
		if s.Listener != nil {
			_ = s.Listener.Close()
		}
	}
}

func (s Server) certified() bool {
	ownConfig := s.TLSConfig
	return ownConfig == nil || len(ownConfig.Certificates) > 0 || ownConfig.GetCertificate != nil || ownConfig.GetConfigForClient != nil
}

func (s Server) addr() string {
	if s.TLSConfig != nil {
		return cmp.Or(s.Addr, ":https")
	}
	return cmp.Or(s.Addr, ":http")
}

func serveAll(end func(), servers []Server) (parts []*part) {
	for _, s := range servers {
		p := start(end, s.Listener.Addr().String(), s.serveUntilShutdown)
		p.server = s.Server
		parts = append(parts, p)
	}
	return parts
}

func (s Server) serveUntilShutdown() (err error) {
	defer s.Listener.Close() // Close the listener, in case the server never used it.
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
