// Package sqlitetest holds the tests that need a SQLite driver. It is a separate module, so that users of compensator
// never download a driver.
package sqlitetest
