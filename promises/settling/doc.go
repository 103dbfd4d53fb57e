// Package settling tests how an outcome gets into the database (G5, G8).
package settling
