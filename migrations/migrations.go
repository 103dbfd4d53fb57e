// Package migrations holds the SQL files that create the process log, in the form goose and golang-migrate
// both read as they are. Files hold one statement each where the database's driver wants it so.
package migrations

import "embed"

// MySQL holds the files for MySQL and MariaDB in the folder "mysql", SQLite those in "sqlite".
var (
	//go:embed mysql/*.sql
	MySQL embed.FS

	//go:embed sqlite/*.sql
	SQLite embed.FS
)
