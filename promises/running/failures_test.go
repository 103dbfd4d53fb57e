// This file describes failures. The comment of a test names the failures that the test provokes. The command go run
// ./internal/reference writes these descriptions into the page docs/internals/failures.md.
//
// # Handlers
//
// F63: A function of the program panics or calls `Goexit`. It is a handler, logger, schedule, observer, key function or
// the method `Error` of an error.
// Result: At most the attempt fails. The slot of the attempt becomes free. But if an observer blocks, the library waits
// for the observer.
// Action: Read the stack in `LastError`.
//
// F64: A handler succeeds after its timeout, or after somebody else has ended its entry.
// Result: The library stores a success after the timeout. If somebody else has ended the entry, the library drops the
// success and logs a warning.
//
// F65: This version of the program lacks the type of an entry, or the compensation of this type.
// Result: The process does not run the entry. `Health.UnknownTypes` names the type.
// Action: Deploy a process that handles the type.
//
// F66: The program registers a type with wrong settings, or after it has called `Run`.
// Result: The registration returns an error, which names every wrong setting.
//
// F67: One type has slow handlers, failing entries are due before other entries, or a backlog uses all slots of a type.
// Result: Entries of other types and new entries still run. In each process, at most `Concurrency` handlers of a type
// run at once.
//
// F68: A handler locks the row of its own entry, or ends this entry.
// Result: If the handler has locked the row, `Cancel` returns `ErrBusy`. Otherwise `Cancel` ends the entry, and a
// transactional handler then leaves no effect. The library refuses each call that ends the entry in the transaction of
// its handler. Only a handler that is not transactional may complete its entry.
//
// F69: A transactional handler ends its transaction, or ignores that the server has rolled the transaction back.
// Result: The attempt fails, and the handler leaves no effect. On a pool without the Connector, the library cannot see
// a BEGIN that the handler sends as text.
// Action: Do not begin or end transactions in the handler.
//
// F70: A process crashes before, during or after a compensation, or a late success comes at the same time as the last
// failure.
// Result: If the success of an entry is stored, the entry is never compensated.
// Action: Write compensations that also succeed if there is nothing to undo.
//
// F71: A batch handler fails for some entries, or does not return a verdict for each entry.
// Result: Each failed entry gets its own failure. If verdicts are missing, no attempt counts, and the library runs each
// entry again alone.
//
// F72: Entries of one business object run at the same time, or a batch has entries of several tenants.
// Result: The library promises no order. The context of a batch has no values that belong to a single entry.
// Action: Use `Serial`. Read the values of each entry from its item.
//
// F73: A customer pays an order while the entry that closes the order runs, retries or is dead. Or the same message
// comes twice.
// Result: Either the payment or the closing succeeds. A second cancellation changes nothing. A second completion
// returns `ErrAlreadySucceeded`.
// Action: Branch on the error of `CancelTx`.
//
// F74: The server refuses a statement of a transactional handler, for example because of a deadlock or a full disk.
// Result: A full disk costs no attempt. A deadlock costs an attempt only after `MaxAttempts` deadlocks in a row.
// Action: Read `LastError`.
//
// F75: A trigger or constraint of the database refuses that the library writes one row.
// Result: The library stores the outcomes of other rows. `Health` names the entry of the refused row.
// Action: Remove the trigger or constraint.
//
// F76: The process lacks the key of encrypted contents, or somebody has changed an encrypted content.
// Result: No attempt counts. The library cannot decrypt a content that was changed, or copied from another entry.
// Action: Give the key to the process.
//
// F77: A service that the handlers of a type call is down.
// Result: A `Breaker` pauses the type in this process, and tries one entry after each pause. Entries older than
// `MaxWait` continue.
// Action: Set `Breaker`.
//
// F78: An error of the database, or one entry that always fails, looks like an outage of the called service.
// Result: The breaker of the type stays closed.
//
// F79: A service answers an HTTP call with any status, with a redirect, or not at all.
// Result: `httpcall` turns the answer into an outcome. The outcome contains neither the query nor the request body.
// `httpcall` follows no redirect that turns the call into a GET.

package running
