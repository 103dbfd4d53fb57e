// Package blocked measures how many sessions the library's processes hold on a server that blocks their statements. It
// also checks that no entry is lost. See TestBlocked.
package blocked
