// Package periodic holds that each slot of a periodic type has one entry, made by whichever process runs, never before its
// time by the database's clock and never again (G23).
package periodic
