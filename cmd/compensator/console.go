package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// The program runs no handler, so console starts no periodic work. For commands that only read, console writes nothing
// and does not check the server.
type console struct {
	processlog.Store
	processlog.Operations
	table        string
	checksServer bool // whether to call Check on the server
}

func openConsole(ctx context.Context, db *sql.DB, table string, level accessLevel) (*console, error) {
	store, err := compensator.OpenStore(ctx, db, table)
	if err != nil {
		return nil, err
	}
	ops, ok := store.(processlog.Operations)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a %T keeps no cases", store), store.Close())
	}
	s := &console{Store: store, Operations: ops, table: table, checksServer: level == changeAccess}
	if s.checksServer { // Run this check first, because its errors say more than the error about a missing table.
		if err := s.Store.Check(ctx); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	err = ops.CheckOperations(ctx)
	var fieldErr *compensator.FieldError
	switch {
	case err == nil:
		return s, nil
	case errors.As(err, &fieldErr) && level == readAccess:
		s.Operations = missingOperations{ops, store}
		return s, nil
	case errors.As(err, &fieldErr):
		err = newNoOperationsError(table)
	}
	return nil, errors.Join(err, store.Close())
}

func newNoOperationsError(table string) error {
	return &exitError{code: codeDatabase, err: fmt.Errorf("this log has no tables for cases, pauses and the audit log (%s_case, _operation, _setting): "+
		"create them with \"compensator migrate\". Then set Config.Operations in the services, which open cases and obey pauses from then on", table)}
}

// Check does nothing, because openConsole makes the check if a command needs it.
func (s *console) Check(context.Context) error { return nil }

// CheckOperations does nothing, because openConsole has checked the tables.
func (s *console) CheckOperations(context.Context) error { return nil }

// Marks returns the current time as the mark of each type. It neither reads nor writes the database.
func (s *console) Marks(_ context.Context, types []string) (time.Time, map[string]time.Time, error) {
	now, marks := time.Now(), make(map[string]time.Time, len(types))
	for _, name := range types {
		marks[name] = now
	}
	return now, marks, nil
}

func (s *console) keepsAttempts(ctx context.Context) bool {
	return !s.lacksOperations() && s.Operations.KeepAttempts(ctx) == nil
}

func (s *console) keepsInstances(ctx context.Context) bool {
	if s.lacksOperations() {
		return false
	}
	_, err := s.Operations.Instances(ctx)
	return err == nil
}

// WriteInstance writes nothing, because the program runs no handler.
func (s *console) WriteInstance(context.Context, processlog.Instance, time.Duration, bool) error {
	return nil
}

func (s *console) lacksOperations() bool {
	_, isMissing := s.Operations.(missingOperations)
	return isMissing
}

// A log with missingOperations can only be read.
type missingOperations struct {
	processlog.Operations
	store processlog.Store
}

func (missingOperations) CasesOf(context.Context, []processlog.ID) ([]processlog.Case, error) {
	return nil, nil
}
func (missingOperations) Types(context.Context) ([]string, error)                { return nil, nil }
func (missingOperations) Settings(context.Context) ([]processlog.Setting, error) { return nil, nil }

// Limits returns none: without the missing tables nobody can change a limit.
func (missingOperations) Limits(context.Context, string) ([]processlog.StoredLimit, error) {
	return nil, nil
}

// AuditLog reads only the records of f.EntryID in the audit table. All other records are in the missing tables.
func (w missingOperations) AuditLog(ctx context.Context, f processlog.AuditLogFilter) (processlog.AuditLogPage, error) {
	changes, err := w.store.History(ctx, f.EntryID)
	var page processlog.AuditLogPage
	for _, r := range slices.Backward(changes) {
		page.Records = append(page.Records, processlog.AuditLogRecord{At: r.At, Actor: r.Actor, Action: string(r.Action), EntryID: r.EntryID,
			Reason: r.Reason, Before: &r.Before, After: &r.After})
	}
	return page, err
}
