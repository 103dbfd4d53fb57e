// Package recording holds what Record promises before its transaction ends: which handles, texts and settings it
// refuses (G2), that an idempotency key stands for one event and one entry however many record it at once (G11), that
// content arrives as it was given, and whose entry it is where databases share a server.
package recording
