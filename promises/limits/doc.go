// Package limits tests what TypeConfig.Limit promises over all processes. See promise G41 in
// docs/reference/guarantees.md.
package limits
