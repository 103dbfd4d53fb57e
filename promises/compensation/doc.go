// Package compensation tests what follows an exhausted entry (G12).
package compensation
