// Package admin is what people may do with the log, whatever they do it with: a page, a command, a program of their own.
// Each of them goes through a [Admin], so that none differs in rights or in what is on record.
//
// # Who may what
//
// The application says who somebody is, and [Access] what they may do: it is asked for each [Right] and each [Subject],
// and only true lets somebody pass. There is no default. A type that an actor may not see is absent from counts, lists,
// groups and sums, and its entries are not found. Content is never part of a view: Reveal shows it to who has the right,
// and says why. Errors show as their shape, without the ids and numbers in them, to who may not see them in full.
//
// # What is on record
//
// An action names entries by the version that was seen, and leaves alone what has changed since. The change, its record
// in the audit table and the closing of the entry's case are one transaction: a process that is killed leaves all of it or
// nothing. What is no change of an entry, a look at content, a case taken, a pause, or a refusal, is an operation, written
// in the transaction of what it speaks of. Refusals are bounded: ten a minute for each actor in a process.
//
// # Cases
//
// An entry that dies opens a case, in the transaction that makes it dead, with its failure's fingerprint, what it is worth
// and until when somebody should have looked. What a service ends with Cancel or Complete keeps its case until the next
// round of maintenance, three minutes or so; the same round opens cases for dead entries that have none.
package admin
