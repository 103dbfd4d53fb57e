// Package orms holds the tests of recording through GORM, bun, ent and sqlx: inside the transaction the ORM has
// begun, by the expression docs/orms.md names.
package orms
