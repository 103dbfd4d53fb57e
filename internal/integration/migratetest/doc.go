// Package migratetest runs the files of package migrations with goose and golang-migrate.
package migratetest
