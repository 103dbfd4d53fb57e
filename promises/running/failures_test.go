// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Handlers
//
// F63: A handler, logger, schedule, observer or error panics, or a handler calls `Goexit`.
// Result: At most the attempt fails, and its slot is free. An observer that blocks does block.
// Action: Read the stack in `LastError`.
//
// F64: A success comes after its timeout, or after somebody else ended the entry.
// Result: After a timeout it counts. After another's end it is dropped with a warning.
//
// F65: This version lacks the type or its compensation.
// Result: The entry is left alone, and `Health.UnknownTypes` names it.
// Action: Deploy a process that handles it.
//
// F66: A registration is wrong or late.
// Result: It is refused, with every bad field named.
//
// F67: One type is slow, failing entries stand in front, or a backlog holds all slots.
// Result: Other types and new entries go on. No more handlers run than `Concurrency`.
//
// F68: A handler locks or ends its own entry.
// Result: In its transaction that is refused without waiting. A transactional handler may not complete it in another
// transaction either, because its effect would then be rolled back. A plain handler may complete its entry in its own
// transaction.
//
// F69: A transactional handler ends its transaction, or swallows a rollback.
// Result: The attempt fails and leaves no effect. On a plain pool a BEGIN as text cannot be seen.
// Action: Leave the transaction to the library.
//
// F70: A process dies around a compensation, or a late success crosses the last failure.
// Result: Exhaustion is stored before the compensation. A recorded success is never compensated.
// Action: A compensation must be able to undo nothing.
//
// F71: A batch fails for some entries, or returns no verdict for each.
// Result: Each entry gets its own failure. Without verdicts none is spent, and entries run alone.
//
// F72: Entries of one business run side by side, or a batch mixes tenants.
// Result: No order is promised. A batch's context carries no entry's values.
// Action: Use `Serial`; read values per item.
//
// F73: An order is paid while its closing runs, retries or is dead, or the same message comes twice.
// Result: Exactly one side wins. A service may end a dead entry, unless its compensation has begun or crashed. A
// second cancellation changes nothing. A second completion is `ErrAlreadySucceeded`.
// Action: Branch on the error of `CancelTx`.
//
// F74: A transactional handler meets a condition of the server.
// Result: A full disk or a stopping server never counts. A lock, a deadlock or a cut statement spends nothing as often
// in a row as the entry has attempts.
// Action: Read `LastError`.
//
// F75: A trigger or constraint refuses one row.
// Result: Others go on. `Health` names the entry.
// Action: Remove the trigger or constraint.
//
// F76: The key for sealed contents is missing, or a content was changed.
// Result: No attempt is spent. A changed or copied content does not open.
// Action: Deploy the key.
//
// F77: A service that a type calls is down.
// Result: A `Breaker` pauses the type in this process, and tries one entry after each pause. Other processes take the
// entries. Entries past `MaxWait` go on by their schedule.
// Action: Set `Breaker`.
//
// F78: A database condition or one bad entry might open a breaker.
// Result: It does not.
//
// F79: A service answers over HTTP with any status, redirect or silence.
// Result: `httpcall` makes an outcome of it, without query or body in `LastError`. A redirect that would make a GET of
// a call is not followed.

package running
