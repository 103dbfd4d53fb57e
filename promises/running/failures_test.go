// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Handlers
//
// F63: A handler, logger, schedule, observer, key function or the text of an error panics, or one of these functions
// calls `Goexit`.
// Result: At most the attempt fails, and its slot is free again. An observer that blocks does block the library.
// Action: Read the stack in `LastError`.
//
// F64: A success comes after its timeout, or after somebody else ended the entry.
// Result: A success after the timeout counts. A success after another end is dropped, with a warning.
//
// F65: This version of the program does not have the type or its compensation.
// Result: The process leaves the entry alone, and `Health.UnknownTypes` names the type.
// Action: Deploy a process that handles the type.
//
// F66: A type is registered with wrong settings or too late.
// Result: The error names every bad field.
//
// F67: One type is slow, failing entries are due first, or a backlog holds all slots.
// Result: Other types and new entries still run. At most `Concurrency` handlers of a type run.
//
// F68: A handler locks or ends its own entry.
// Result: The library refuses the call. Only a plain handler may complete its entry, in a transaction of its own.
//
// F69: A transactional handler ends its transaction, or ignores a rollback.
// Result: The attempt fails and leaves no effect. On a plain pool the library cannot see a BEGIN that is sent as
// text.
// Action: Do not begin or end transactions in the handler.
//
// F70: A process dies around a compensation, or a late success meets the last failure.
// Result: A recorded success is never compensated.
// Action: Write compensations that accept that there is nothing to undo.
//
// F71: A batch fails for some entries, or returns no verdict for each.
// Result: Each entry gets its own failure. Without verdicts no attempt counts, and each entry runs again alone.
//
// F72: Entries of one business object run at the same time, or a batch has entries of several tenants.
// Result: No order is promised. The context of a batch has no values of one entry.
// Action: Use `Serial`. Read the values of each entry from its item.
//
// F73: An order is paid while its closing runs, retries or is dead, or the same message comes twice.
// Result: One side succeeds. A second cancellation changes nothing, and a second completion returns
// `ErrAlreadySucceeded`.
// Action: Branch on the error of `CancelTx`.
//
// F74: A transactional handler meets a condition of the server.
// Result: A full disk never counts. Deadlocks count only after as many in a row as the entry has attempts.
// Action: Read `LastError`.
//
// F75: A trigger or constraint refuses one row.
// Result: Outcomes of other rows are stored. `Health` names the refused entry.
// Action: Remove the trigger or constraint.
//
// F76: The key of encrypted contents is missing, or a content was changed.
// Result: No attempt counts. A changed or copied content cannot be decrypted.
// Action: Deploy the key.
//
// F77: A service that a type calls is down.
// Result: A `Breaker` pauses the type in this process, and tries one entry after each pause. Entries older than
// `MaxWait` continue.
// Action: Set `Breaker`.
//
// F78: An error of the database, or one entry that always fails, might open a breaker.
// Result: The breaker stays closed.
//
// F79: A service answers an HTTP call with any status, with a redirect, or not at all.
// Result: `httpcall` turns the answer into an outcome without query and request body. It follows no redirect that
// makes the call a GET.

package running
