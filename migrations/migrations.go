// Package migrations holds the SQL files that create the process log. goose and golang-migrate can read their format. A
// file holds only one statement if the database's driver requires that.
package migrations

import "embed"

// MySQL holds the files for MySQL and MariaDB in the folder "mysql". SQLite holds those in the folder "sqlite".
var (
	//go:embed mysql/*.sql
	MySQL embed.FS

	//go:embed sqlite/*.sql
	SQLite embed.FS
)
