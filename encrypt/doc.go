// Package encrypt stores the contents of entries as ciphertext. Its Codec is for TypeConfig.Codec. It seals the output
// of another codec with AES-256-GCM.
//
//	codec, err := encrypt.New(encrypt.Config{Keys: []encrypt.Key{{ID: "2026-11", Secret: secret}}})
//	letters, err := compensator.Handle(c, "letter", send, compensator.TypeConfig{Codec: codec})
//
// Each content is bound to its business type and idempotency key. A content that was copied to another row does not
// open there. So an entry must keep both. If you rename a type in the table, do it before its contents are sealed.
//
// # Keys
//
// The first key seals, and all keys open. To rotate, first add the new key behind the others in every process. Then
// move it to the front. Remove an old key when no entry that it sealed is needed any more. Destroying a key erases
// everything that it sealed, in backups and binary logs, too. One key may seal up to 2^32 contents.
//
// A content may not open because its key is missing or because it was changed. This spends no attempt, as with any
// content that a codec cannot decode. The handler is not called. The entry is tried again every few seconds, and its
// last error names the missing key. It runs in a process that has the key. If this counted as a failure, a process
// deployed without a key would exhaust thousands of entries, and their compensations could not read them either. A
// person finds such entries with Filter.LastError, and may cancel them.
//
// # What can be seen
//
// The same value under the same key, type and idempotency key always has the same ciphertext. So the library can still
// tell a repeated event from another event. This reveals no more than the idempotency key does. After a rotation the
// ciphertext differs, and a type with RefuseOtherContent refuses repeated events from before the rotation.
//
// Some things stay readable: the length of a content, ids, headers, user name and last error. The key of
// TypeConfig.Serial is readable while the entry has a note.
package encrypt
