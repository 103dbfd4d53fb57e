// Package admin tests package admin on a real server. Each entry that dies has a case (G31). Each action of a person
// and its audit record are one transaction, and an action takes effect at most once (G32). Without Config.Operations
// the library uses no table of cases, operations or settings.
package admin
