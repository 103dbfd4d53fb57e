package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const workerArgument = "worker"

// work runs entries until the parent process closes standard input or dies.
func work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	db, err := openDatabase()
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := openShop(ctx, db)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return errors.Join(s.Run(ctx), s.Close())
}

type worker struct {
	cmd   *exec.Cmd
	stdin io.Closer
	gone  chan struct{} // closed when the process has ended
	err   error         // result of the process; read it only after the channel gone is closed
}

func startWorker(ctx context.Context, db *database) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, workerArgument)
	cmd.Env = append(os.Environ(), dsnVariable+"="+db.dsn, fileVariable+"="+db.file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, stdin: stdin, gone: make(chan struct{})}
	go func() {
		w.err = cmd.Wait()
		close(w.gone)
	}()
	return w, nil
}

func (w *worker) String() string { return fmt.Sprintf("worker %d", w.cmd.Process.Pid) }

// The worker runs no handler, no deferred call and no Rollback any more.
func (w *worker) kill() error {
	if err := w.cmd.Process.Kill(); err != nil {
		return err
	}
	<-w.gone
	return nil
}

func (w *worker) stop() error {
	_ = w.stdin.Close() // Close fails only if the worker has ended. Its error is returned below.
	<-w.gone
	if w.err != nil {
		return fmt.Errorf("%v: %w", w, w.err)
	}
	return nil
}

// await returns an error if the worker ends.
func (w *worker) await(ctx context.Context, ask func() (bool, error)) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		yes, err := ask()
		if yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.gone:
			return fmt.Errorf("%v ended by itself: %v", w, w.err)
		case <-ticker.C:
		}
	}
}
