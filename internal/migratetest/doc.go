// Package migratetest holds the tests that run the files of package migrations with other people's tools. It is
// a module of its own, so that whoever imports compensator never sees those.
package migratetest
