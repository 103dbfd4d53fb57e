// Package admin tests package admin on a real server. Each entry that dies has a case (G31). Each action is one
// transaction with its record, and is done at most once (G32). Without Config.Operations none of its tables is used.
package admin
