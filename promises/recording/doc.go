// Package recording tests what Record promises before its transaction ends:
//
//   - Record refuses invalid handles, texts and settings (G2).
//   - An idempotency key stands for one event and one entry. This holds for concurrent callers, too (G11).
//   - Content arrives unchanged.
//   - An entry belongs to the right database where several databases share a server.
package recording
