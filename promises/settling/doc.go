// Package settling tests how an outcome gets into the database (G5, G8). It is stored once and fenced by its token. It
// passes locks, outages and lost answers. The queue learns of it only afterwards.
package settling
