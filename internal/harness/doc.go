// Package harness holds what the test packages under promises share:
package harness
