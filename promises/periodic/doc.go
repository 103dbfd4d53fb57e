// Package periodic tests that each slot of a periodic type gets one entry, made by any running process (G23). A slot is
// never made early by the database's clock, and never twice.
package periodic
