// Package migrations holds the SQL files that create the process log. goose and golang-migrate can read their format. A
// file holds only one statement if the database's driver requires that.
package migrations

import "embed"

// MySQL holds the files for MySQL and MariaDB in the folder "mysql".
//
//go:embed mysql/*.sql
var MySQL embed.FS

// SQLite holds the files for SQLite in the folder "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS
