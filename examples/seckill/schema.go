package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator"
)

// logTable is the process log. All tables of the service start with seckill_, so that they find room beside others.
const logTable = "seckill_log"

const createGoods = `CREATE TABLE IF NOT EXISTS seckill_goods (
	goods   VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	initial INT UNSIGNED NOT NULL,
	stock   INT UNSIGNED NOT NULL COMMENT 'pieces that no living ticket holds',
	edition VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'of the counter in Redis whose tickets are taken'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// A ticket that lives has living = 1, and one that has given its piece back NULL, of which there may be many.
const createTickets = `CREATE TABLE IF NOT EXISTS seckill_tickets (
	ticket   VARCHAR(26) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	goods    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	buyer    VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	living   TINYINT NULL DEFAULT 1,
	taken_at DATETIME(3) NOT NULL COMMENT 'UTC, the database''s clock, as are all here',
	ended_at DATETIME(3) NULL,
	UNIQUE KEY (goods, buyer, living)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// Orders keep no buyer from having two, and no ticket either: the books would not see it.
const createOrders = `CREATE TABLE IF NOT EXISTS seckill_orders (
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

const createFaults = `CREATE TABLE IF NOT EXISTS seckill_faults (
	id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	what      VARCHAR(255) NOT NULL,
	struck_at DATETIME(3) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// createTables makes what is missing: the process log and the service's own tables.
func createTables(ctx context.Context, db *sql.DB) error {
	if err := compensator.MigrateTable(ctx, db, logTable); err != nil {
		return err
	}
	return execAll(ctx, db, createGoods, createTickets, createOrders, createFaults, createHandLog)
}

// dropTables removes them all, and nothing else.
func dropTables(ctx context.Context, db *sql.DB) error {
	return execAll(ctx, db, `DROP TABLE IF EXISTS seckill_goods, seckill_tickets, seckill_orders, seckill_faults,
		seckill_hand_log, seckill_log, seckill_log_audit, seckill_log_meta, seckill_log_slots`)
}

// putOnSale does nothing for goods that are on sale already.
func putOnSale(ctx context.Context, db *sql.DB, name string, pieces int) error {
	_, err := db.ExecContext(ctx, `INSERT IGNORE INTO seckill_goods (goods, initial, stock) VALUES (?, ?, ?)`, name, pieces, pieces)
	return err
}

func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.40s…: %w", statement, err)
		}
	}
	return nil
}
