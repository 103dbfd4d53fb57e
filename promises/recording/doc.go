// Package recording tests what Record promises before its transaction ends (G2, G11).
package recording
