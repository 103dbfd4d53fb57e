// Package keeping tests the purge of ended entries (G24). Entries are purged once they have been kept as long as
// configured. One process purges at a time. The purge deletes no other entries.
package keeping
