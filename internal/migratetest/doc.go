// Package migratetest runs the files of package migrations with goose and golang-migrate. It is a separate module, so
// that importers of compensator do not depend on these tools.
package migratetest
