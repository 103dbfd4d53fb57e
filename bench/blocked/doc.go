// Package blocked measures how many sessions processes of the library hold on a server that blocks their statements, and
// whether anything is lost by it. See TestBlocked.
package blocked
