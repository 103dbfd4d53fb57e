// Package settling tests how an outcome gets into the database (G5: exactly once, G8: a success is stored):
//
//   - An outcome is stored once, and only with the token of its claim.
//   - An outcome is stored despite locks, outages and lost answers.
//   - The queue learns of an outcome only after the database has stored it.
package settling
