// Package sqlitetest holds the tests that need a SQLite driver. It is a module of its own, so that whoever
// imports compensator never sees one.
package sqlitetest
