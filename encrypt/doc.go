// Package encrypt keeps contents of entries as ciphertext: a Codec, for TypeConfig.Codec, that seals what another codec
// has written with AES-256-GCM.
//
//	codec, err := encrypt.New(encrypt.Config{Keys: []encrypt.Key{{ID: "2026-11", Secret: secret}}})
//	letters, err := compensator.Handle(c, "letter", send, compensator.TypeConfig{Codec: codec})
//
// Each content is bound to its business type and idempotent id: one that was copied to another row is not opened there. So
// an entry must keep both; a type that is renamed in the table is renamed before its contents are sealed.
//
// # Keys
//
// The first key seals, all of them open. To rotate, add the new key behind the others in every process, then move it
// to the front, and drop an old one when no entry that it sealed is needed any more: whoever destroys a key has erased what it
// sealed, in backups and binary logs as well. A key seals up to 2^32 contents.
//
// Content that cannot be opened, because its key is not here or because it was changed, spends no attempt, as any content that a
// codec cannot read: its handler is not called, the entry is offered again every few seconds, and its last error says which key is
// missing. It runs where the key is, or when it comes. To take it for a failure would make a process that was
// deployed without a key kill entries by the thousand, and their compensations could not read them either. A
// person finds them by Filter.LastError, and may cancel them.
//
// # What can be seen
//
// The same value under the same key, type and idempotent id is always the same content, so that recording an event twice is still
// told from recording another one; it tells nobody more than the idempotent id does. After a rotation it is another content: a type with
// RefuseOtherContent refuses events that come again from before. The length of a content can be seen, and all the rest of the
// entry: ids, headers, user name, last error, and while it stands in a line the key of TypeConfig.Serial.
package encrypt
