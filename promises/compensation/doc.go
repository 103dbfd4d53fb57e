// Package compensation tests what follows an exhausted entry. See promise G12 in docs/reference/guarantees.md.
package compensation
