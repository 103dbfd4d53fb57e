package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/compensator-go/compensator"
)

// All tables of the service start with usersync_, so that they can share a database with others.
const logTable = "usersync_log"

const createBatches = `CREATE TABLE IF NOT EXISTS usersync_batches (
	batch       VARCHAR(40) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
	operator    VARCHAR(64) NOT NULL,
	trace       VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	digest      CHAR(64) COLLATE utf8mb4_bin NOT NULL COMMENT 'of its users: the same batch again, or another?',
	users       INT NOT NULL,
	uploaded_at DATETIME(3) NOT NULL COMMENT 'UTC, the database''s clock, as are all here'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

const createUsers = `CREATE TABLE IF NOT EXISTS usersync_users (
	batch    VARCHAR(40) COLLATE utf8mb4_bin NOT NULL,
	user     VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	name     VARCHAR(64) NOT NULL,
	email    VARCHAR(64) NOT NULL,
	failures INT NOT NULL DEFAULT 0 COMMENT 'of consumers',
	refused  BOOL NOT NULL DEFAULT FALSE COMMENT 'no use to try again',
	reason   VARCHAR(255) NOT NULL DEFAULT '' COMMENT 'of the last failure',
	PRIMARY KEY (batch, user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

// The directory lets a user have two rows, because the final check must be able to find this fault.
const createDirectory = `CREATE TABLE IF NOT EXISTS usersync_directory (
	id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	batch     VARCHAR(40) COLLATE utf8mb4_bin NOT NULL,
	user      VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	trace     VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	synced_at DATETIME(3) NOT NULL,
	KEY (batch, user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

const createSendings = `CREATE TABLE IF NOT EXISTS usersync_sendings (
	id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	batch   VARCHAR(40) COLLATE utf8mb4_bin NOT NULL,
	user    VARCHAR(64) COLLATE utf8mb4_bin NOT NULL,
	sending INT NOT NULL COMMENT 'from 1 on: the first message is not written down',
	sent_at DATETIME(3) NOT NULL,
	KEY (batch, user)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

const createFaults = `CREATE TABLE IF NOT EXISTS usersync_faults (
	id        BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
	what      VARCHAR(255) NOT NULL,
	struck_at DATETIME(3) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`

func createTables(ctx context.Context, db *sql.DB) error {
	if err := compensator.MigrateTable(ctx, db, logTable); err != nil {
		return err
	}
	return execAll(ctx, db, createBatches, createUsers, createDirectory, createSendings, createFaults, createHandLog)
}

// dropTables removes the service's tables and the process log, and no other table.
func dropTables(ctx context.Context, db *sql.DB) error {
	return execAll(ctx, db, `DROP TABLE IF EXISTS usersync_batches, usersync_users, usersync_directory, usersync_sendings,
		usersync_faults, usersync_hand_log, usersync_log, usersync_log_audit, usersync_log_meta, usersync_log_fault, usersync_log_result, usersync_log_limit, usersync_log_slots, usersync_log_turns,
		usersync_log_attempt, usersync_log_stat, usersync_log_instance, usersync_log_case, usersync_log_operation, usersync_log_setting`)
}

func execAll(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.40s…: %w", statement, err)
		}
	}
	return nil
}
