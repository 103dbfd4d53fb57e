// Package periodic tests that each slot of a periodic type gets exactly one entry, from any running process (G23).
package periodic
