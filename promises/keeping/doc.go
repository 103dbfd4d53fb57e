// Package keeping tests the purge of ended entries. See promise G24 in docs/reference/guarantees.md.
package keeping
