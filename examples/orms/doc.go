// Package orms tests recording through GORM, bun, ent and sqlx. The entries are recorded inside the ORM's transaction,
// with the expressions of docs/how-to/orms.md.
package orms
