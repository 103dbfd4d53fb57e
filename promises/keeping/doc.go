// Package keeping tests the purge of ended entries (G24).
package keeping
