package compensator

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/processlog"
)

// OpenStore opens a store as New does for the fields Config.DB and Config.Table. Use OpenStore if you want to wrap the
// store and pass the wrapper as Config.Store, or to test the store with package compensatortest/suite. OpenStore does
// not call Check. Close the store when you are done.
func OpenStore(ctx context.Context, db *sql.DB, table string) (processlog.Store, error) {
	s, err := sqlstore.Open(ctx, db, table)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Compensator) openStore(ctx context.Context) (processlog.Store, error) {
	if c.cfg.Store != nil {
		return c.cfg.Store, nil
	}
	s, err := sqlstore.Open(ctx, c.cfg.DB, c.cfg.Table)
	if err != nil {
		return nil, err
	}
	c.connector = s.Connector()
	return s, nil
}

func (c *Compensator) checkStore(ctx context.Context) error {
	if err := c.store.Check(ctx); err != nil {
		return err
	}
	if s, ok := c.store.(*sqlstore.Store); ok {
		if err := c.checkServer(s); err != nil {
			return err
		}
	}
	if err := c.checkOperations(ctx); err != nil {
		return err
	}
	var err error
	c.fingerprint, err = c.store.Fingerprint(ctx)
	return err
}

// checkServer refuses a MaxContent that does not fit into a network packet of the server (max_allowed_packet).
func (c *Compensator) checkServer(s *sqlstore.Store) error {
	for _, note := range s.Notes() {
		c.log.Warn("compensator: "+note, "server", s.Version())
	}
	if limit := s.ContentLimit(); limit > 0 && c.cfg.MaxContent > limit {
		return &FieldError{Field: "MaxContent", Reason: fmt.Sprintf("%d: the server's max_allowed_packet leaves room for %d bytes", c.cfg.MaxContent, limit)}
	}
	return nil
}

// sameLog returns an error if tx belongs to another database, because an entry recorded in tx would go into a log that
// this Compensator does not read. Another Connector or Compensator began tx, and is passed as the parameter from.
func (c *Compensator) sameLog(ctx context.Context, tx Tx, from any) error {
	s, ok := c.store.(*sqlstore.Store)
	if _, known := c.sameLogSources.Load(from); known || !ok {
		return nil
	}
	fingerprint, err := s.FingerprintBy(ctx, tx)
	switch {
	case err != nil:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another pool than Config.DB, and whether it has the same log could not be read: %v", err)}
	case fingerprint != c.fingerprint:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another database, whose log has the fingerprint %s, and this one %s", fingerprint, c.fingerprint)}
	}
	c.sameLogSources.Store(from, true)
	return nil
}
