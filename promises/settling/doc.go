// Package settling tests how an outcome gets into the database. See promises G5 and G8 in docs/reference/guarantees.md.
package settling
