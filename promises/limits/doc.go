// Package limits tests what TypeConfig.Limit promises over all processes (G41).
package limits
