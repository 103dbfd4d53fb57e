// Package orms tests recording through GORM, bun, ent and sqlx.
package orms
