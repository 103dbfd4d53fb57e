package shop

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator"
)

// Tables is the prefix of a sale's table names, so that several sales can share a database.
type Tables string

// SQL replaces the prefix shop_ of the table names in a statement by the prefix t.
func (t Tables) SQL(statement string) string {
	return strings.ReplaceAll(statement, "shop_", string(t)+"_")
}

const createGoods = `CREATE TABLE IF NOT EXISTS shop_goods (
	goods   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	initial INT UNSIGNED NOT NULL,
	stock   INT UNSIGNED NOT NULL COMMENT 'pieces that no living ticket holds',
	edition VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of the counter in Redis whose tickets are taken'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// A living ticket has living = 1. A ticket that has given its piece back has NULL, and a buyer may have many of these.
const createTickets = `CREATE TABLE IF NOT EXISTS shop_tickets (
	ticket   VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	goods    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	buyer    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	living   TINYINT NULL DEFAULT 1,
	taken_at DATETIME(3) NOT NULL COMMENT 'UTC, the database''s clock, as are all here',
	ended_at DATETIME(3) NULL,
	UNIQUE KEY (goods, buyer, living)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// The table lets a buyer or a ticket have two orders, because the final check must be able to find this fault.
const createOrders = `CREATE TABLE IF NOT EXISTS shop_orders (
	id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	ticket     VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	goods      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	buyer      VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	state      VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'open' COMMENT 'open, paid or closed',
	created_at DATETIME(3) NOT NULL,
	due_at     DATETIME(3) NOT NULL,
	paid_at    DATETIME(3) NULL,
	closed_at  DATETIME(3) NULL,
	KEY (ticket), KEY (goods, buyer), KEY (state, due_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

const createFaults = `CREATE TABLE IF NOT EXISTS shop_faults (
	id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	what      VARCHAR(255) NOT NULL,
	struck_at DATETIME(3) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// Create creates the process log and all missing tables. besides holds the statements of the sale's own tables.
func (t Tables) Create(ctx context.Context, db *sql.DB, besides ...string) error {
	if err := compensator.MigrateTable(ctx, db, t.SQL("shop_log")); err != nil {
		return err
	}
	for _, statement := range append([]string{createGoods, createTickets, createOrders, createFaults}, besides...) {
		if _, err := db.ExecContext(ctx, t.SQL(statement)); err != nil {
			return fmt.Errorf("%.40s…: %w", statement, err)
		}
	}
	return nil
}

// Drop removes the sale's tables and the process log, and no other table.
func (t Tables) Drop(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, t.SQL(`DROP TABLE IF EXISTS shop_goods, shop_tickets, shop_orders, shop_faults,
		shop_hand_log, shop_log, shop_log_audit, shop_log_meta, shop_log_fault, shop_log_result, shop_log_limit, shop_log_slots, shop_log_turns,
		shop_log_attempt, shop_log_stat, shop_log_instance, shop_log_case, shop_log_operation, shop_log_setting`))
	return err
}

// PutOnSale puts goods on sale. It does nothing if they are on sale already.
func (t Tables) PutOnSale(ctx context.Context, db *sql.DB, name string, pieces int) error {
	_, err := db.ExecContext(ctx, t.SQL(`INSERT IGNORE INTO shop_goods (goods, initial, stock) VALUES (?, ?, ?)`), name, pieces, pieces)
	return err
}
