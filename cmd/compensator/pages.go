package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/compensator-go/compensator/ui"
	"github.com/compensator-go/compensator/ui/local"
)

// A signal ends the command with exit code 0.
func (p *program) newPagesCommand() *cobra.Command {
	var listen string
	var canWrite bool
	cmd := p.newCommand("ui", "Serve the operator's pages on loopback, to the browser that sends the printed token. The pages are read-only without --write", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		listener, err := local.Listen(ctx, listen)
		if err != nil {
			return newUsageError("%s", plainText(err))
		}
		level := operateAccess
		if canWrite {
			level = changeAccess
		}
		// Let a person run finished entries again, as the flag --again does for other commands. The pages ask for a
		// confirmation before each repetition.
		p.canRepeat, p.readOnly = canWrite, !canWrite
		p.readTime = 0 // Use the short default of the Admin, because pages refresh every few seconds.
		s, err := p.openSession(ctx, level)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		if canWrite && s.redis == nil {
			p.printf("without --redis requeued entries wait for the reconciler of their services: 15 s by default")
		}
		opts := ui.Options{Title: p.flags.table, Logger: slog.New(slog.NewTextHandler(p.stderr, nil))}
		err = local.Serve(ctx, listener, s.actor, opts, func(link string) {
			fmt.Fprintln(p.stdout, link)
			p.printf("this address admits one browser, once. Ctrl-C stops the pages")
		}, s.Admin)
		return cmp.Or(err, s.Close())
	})
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "address to listen on, on loopback")
	cmd.Flags().BoolVar(&canWrite, "write", false, "allow changes on the pages, under your name")
	return cmd
}
