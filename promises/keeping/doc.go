// Package keeping tests that ended entries are purged once they have been kept as long as configured (G24). One process
// purges at a time. Nothing else is purged.
package keeping
