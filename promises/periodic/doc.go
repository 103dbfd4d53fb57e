// Package periodic tests that each slot of a periodic type gets exactly one entry, from any running process (G23). No
// slot gets its entry early, by the database's clock.
package periodic
