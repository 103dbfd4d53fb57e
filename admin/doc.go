// Package admin lets people read the log and act on it, with rights and an audit log. Web pages, commands and your own
// programs all use an [Admin].
//
// # Rights
//
// Your application says who an actor is, and your [Access] decides what the actor may do. An Admin asks Access for each
// [Right] and each [Subject]. An action is allowed only if Access returns true.
//
// A type that an actor may not see is missing from counts, lists, groups and sums, and its entries are not found. No
// view contains content or a result. Only Reveal shows them, and it needs the right SeeContent and a reason. If an
// actor may not see errors in full, the Admin removes ids, numbers and quoted words from errors.
//
// # Audit log
//
// An action names each entry with the version that the actor saw. If an entry has changed since then, the action does
// not change it. One transaction changes the entry, writes the audit record and closes the entry's case. After a crash,
// either all three changes are stored or none.
//
// The Admin records actions that change no entry, and each refusal, as operations. One transaction writes an operation
// and the change that the operation describes. Each process records at most ten refusals a minute per actor.
//
// # Cases
//
// When an entry becomes dead, the same transaction opens a case. The case has the fingerprint of the failure, the
// amount, and the time by which a person should look at the case.
//
// If a service ends the entry with Cancel or Complete, the next round of maintenance closes the case, within about
// three minutes. The same round opens cases for dead entries that have no case.
package admin
