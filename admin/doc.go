// Package admin lets people read the log and act on it, with rights and an audit log. Web pages, commands and programs
// of your own all use an [Admin]. So all of them have the same rights and the same records.
//
// # Rights
//
// Your application says who an actor is, and your [Access] decides what the actor may do. Access is asked for each
// [Right] and each [Subject]. Only true allows the action. There is no default.
//
// A type that an actor may not see is missing from counts, lists, groups and sums, and its entries are not found. No
// view contains content. Reveal shows content to actors who have the right and give a reason. Errors are masked for
// actors who may not see them in full: ids, numbers and quoted words are removed.
//
// # Audit log
//
// An action names each entry with the version that the actor saw. An entry that has changed since is left alone. One
// transaction changes the entry, writes the audit record and closes the entry's case. A process that is killed leaves
// all of it or nothing.
//
// Other actions are recorded as operations: revealing content, taking a case, a pause, a refusal. An operation is
// written in the transaction of the change that it describes. Each process records at most ten refusals a minute per
// actor.
//
// # Cases
//
// An entry that becomes dead opens a case in the same transaction. The case has the fingerprint of the failure, the
// amount, and the time by which a person should look at it.
//
// If a service ends the entry with Cancel or Complete, the next round of maintenance closes the case, within about
// three minutes. The same round opens cases for dead entries that have none.
package admin
