// Package encrypt stores the contents of entries as ciphertext. Use its Codec as TypeConfig.Codec. It seals the output
// of another codec with AES-256-GCM.
//
//	codec, err := encrypt.New(encrypt.Config{Keys: []encrypt.Key{{ID: "2026-11", Secret: secret}}})
//	letters, err := compensator.Handle(ctx, c, "letter", send, &compensator.HandlerConfig[Letter]{
//		TypeConfig: compensator.TypeConfig{Codec: codec},
//	})
//
// Each content is bound to its business type and idempotency key. A content that was copied to another row cannot be
// opened there. So the business type and the idempotency key of an entry must not change. If you rename a type in the
// table, do it before its contents are sealed.
//
// # Keys
//
// The first of the encryption keys in Config.Keys seals, and all of them open. To rotate, first add the new key at the
// end of Keys in every process. Then move it to the front. Remove an old key when you no longer need the entries that
// it has sealed. If you destroy a key, you erase everything that it has sealed, also in backups and binary logs. One
// key may seal up to 2^32 contents.
//
// A content cannot be opened if its key is missing, or if the content was changed. In these cases the handler is not
// called, and no attempt is spent, as with any content that a codec cannot decode. The entry is tried again every few
// seconds, and its last error names the missing key. A process that has the key can run the entry. If a missing key
// counted as a failure, one process without the key would exhaust thousands of entries. The compensations of these
// entries could not read the contents either. A person finds such entries with Filter.LastError, and may cancel them.
//
// # What can be seen
//
// The same value under the same encryption key, business type and idempotency key always has the same ciphertext. So
// the library can still distinguish a repeated event from another event. Equal ciphertexts reveal nothing new: they
// only occur under the same idempotency key, and that key is readable anyway.
//
// After a rotation of the encryption keys, the ciphertext differs. So a type with RefuseOtherContent refuses repeated
// events from before the rotation.
//
// Some values stay readable: the length of a content, ids, headers, user name and last error. The ordering key that
// TypeConfig.Serial returns is readable while the table of positions holds a row for the entry.
package encrypt
