// Package recording tests what Record promises before its transaction ends:
//
//   - Record refuses invalid handles, texts and settings (G2).
//   - An idempotency key stands for one event and one entry, also with concurrent callers (G11).
//   - Content arrives unchanged.
//   - An entry belongs to the right database where several share a server.
package recording
