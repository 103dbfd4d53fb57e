package main

import (
	"context"

	"github.com/compensator-go/compensator"
)

const (
	logTable = "shop_process_log"
	inStock  = 1000 // of each item, at the start of the day
)

var items = []string{"apples", "bread", "cheese", "dates"}

var tables = []string{"shop_stock", "shop_orders", "shop_parcels", logTable, logTable + "_audit", logTable + "_meta", logTable + "_fault", logTable + "_result", logTable + "_limit", logTable + "_slots", logTable + "_turns",
	logTable + "_attempt", logTable + "_stat", logTable + "_instance", logTable + "_case", logTable + "_operation", logTable + "_setting"}

// Times are in ms since 1970.
var schema = []string{
	`CREATE TABLE shop_stock (
		item VARCHAR(20) NOT NULL PRIMARY KEY,
		n    INT NOT NULL)`,
	`CREATE TABLE shop_orders (
		id        INT NOT NULL PRIMARY KEY,
		item      VARCHAR(20) NOT NULL,
		quantity  INT NOT NULL,
		drone     BOOL NOT NULL,
		status    VARCHAR(10) NOT NULL,
		pay_by    BIGINT NOT NULL,
		closed_at BIGINT,
		refunds   INT NOT NULL DEFAULT 0)`,
	`CREATE TABLE shop_parcels (
		order_id        INT NOT NULL,
		idempotency_key VARCHAR(64) NOT NULL)`,
}

func (db *database) clear(ctx context.Context) error {
	if err := db.forget(ctx); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return err
		}
	}
	for _, statement := range schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	for _, item := range items {
		if _, err := db.ExecContext(ctx, "INSERT INTO shop_stock (item, n) VALUES (?, ?)", item, inStock); err != nil {
			return err
		}
	}
	return compensator.MigrateTable(ctx, db.DB, logTable)
}
