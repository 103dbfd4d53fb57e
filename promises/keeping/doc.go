// Package keeping tests the purge of ended entries (G24). An entry is purged when it has been kept for the configured
// time. One process purges at a time. The purge deletes no other entries.
package keeping
