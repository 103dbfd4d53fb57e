package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator"
)

const createStock = `CREATE TABLE IF NOT EXISTS stock (
	sku VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	n   INT NOT NULL COMMENT 'pieces that no order holds'
) ENGINE=InnoDB`

const createOrders = `CREATE TABLE IF NOT EXISTS orders (
	id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	order_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE COMMENT 'the client''s: one key, one order',
	sku       VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	quantity  INT NOT NULL,
	state     VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'open' COMMENT 'open, paid or closed',
	due_at    DATETIME(3) NOT NULL COMMENT 'deadline of the payment; UTC, the database''s clock, as are all here',
	paid_at   DATETIME(3) NULL,
	closed_at DATETIME(3) NULL
) ENGINE=InnoDB`

const someStock = `INSERT IGNORE INTO stock (sku, n) VALUES ('book', 1000)`

func createTables(ctx context.Context, db *sql.DB) error {
	if err := compensator.Migrate(ctx, db); err != nil {
		return err
	}
	for _, statement := range []string{createStock, createOrders, someStock} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return nil
}
