// Package admin tests package admin on a real server. It covers cases, and actions of people with their audit records.
// These are promises G31 and G32 in docs/reference/guarantees.md.
package admin
