package compensator

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator/internal/sqlstore"
	"github.com/compensator-go/compensator/internal/txwatch"
)

// OpenStore makes the store that New makes of Config.DB and Config.Table: for whoever wraps it and gives it to
// New as Config.Store, or has the suite of package compensatortest try another database. It does not Check; Close it.
func OpenStore(ctx context.Context, db *sql.DB, table string) (Store, error) {
	s, err := sqlstore.Open(ctx, db, table)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// checkServer warns of what Check found on the server, and refuses entries that would not fit into one of its packets.
func (c *Compensator) checkServer(s *sqlstore.Store) error {
	for _, note := range s.Notes() {
		c.log.Warn("compensator: "+note, "server", s.Version())
	}
	if limit := s.ContentLimit(); limit > 0 && c.cfg.MaxContent > limit {
		return &FieldError{Field: "MaxContent", Reason: fmt.Sprintf("%d: the server's max_allowed_packet leaves room for %d bytes", c.cfg.MaxContent, limit)}
	}
	return nil
}

// sameLog refuses a transaction of another database, whose log an entry would go to. Connections of the Connector that
// Config.DB was opened on are taken as they are; any other Connector is asked once.
func (c *Compensator) sameLog(ctx context.Context, tx Tx, home *txwatch.Connector) error {
	s, ok := c.store.(*sqlstore.Store)
	d, watched := c.cfg.DB.Driver().(txwatch.Driver)
	if _, known := c.homes.Load(home); known || !ok || !watched || d.Connector == home {
		return nil
	}
	fingerprint, err := s.FingerprintBy(ctx, tx)
	switch {
	case err != nil:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another Connector than Config.DB, and whether it has the same log could not be read: %v", err)}
	case fingerprint != c.fingerprint:
		return &FieldError{Field: "tx", Reason: fmt.Sprintf("is one of another database, whose log has the fingerprint %s, and this one %s", fingerprint, c.fingerprint)}
	}
	c.homes.Store(home, true)
	return nil
}
