// Package recording tests what Record promises before its transaction ends:
//
//   - Record refuses invalid handles, texts and settings (G2).
//   - An idempotency key stands for one event and one entry, also with concurrent callers (G11).
//   - Handlers get the content unchanged.
//   - If several databases share a server, an entry goes into the right one.
package recording
