// Package sqlitetest holds the tests that need a SQLite driver.
package sqlitetest
