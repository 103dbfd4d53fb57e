package main

type advice struct{ cause, do string }

var errorAdvice = map[string]advice{
	"compensator.ErrNoTransaction": {
		"`Record` got a handle without an open transaction: a pool, a finished transaction, or a session in autocommit. `Record` wrote no row.",
		"Pass the `*sql.Tx`, or the [ORM's transaction](../how-to/orms.md), that makes the business change.",
	},
	"compensator.ErrTxAborted": {
		"The server rolled the transaction back, for example after a deadlock or a lock wait. The error also matches `ErrNoTransaction`.",
		"Roll back and run the whole transaction again, as `WithRetry` does.",
	},
	"compensator.ErrNotRecorded": {
		"Your code ignored an error of `Record`. So `Commit` rolled the whole transaction back.",
		"Roll back and report each error of `Record`.",
	},
	"compensator.ErrCommitUnknown": {
		"The connection broke during COMMIT. The transaction may have committed.",
		"Call `Resolve` with the idempotency key of an entry of the transaction, as `WithRetry` does.",
	},
	"compensator.ErrHistoryLost": {
		"The database has lost commits that this process has seen. Perhaps a lagging replica was promoted or a backup was restored. Entries still run. With `StopOnLoss` the process starts no entry until a person calls `AcceptLoss`. The error is a `*LossError`.",
		"Follow [after a failover](../how-to/failover.md). Do not restart the processes, because only they know which entries were lost.",
	},
	"compensator.ErrDuplicate": {
		"`Options.FailOnDuplicate` is set, and an entry with this idempotency key exists.",
		"Roll back if your transaction has written rows.",
	},
	"compensator.ErrOtherContent": {
		"`RefuseOtherContent` is set, and the recorded entry has another content. The transaction cannot commit.",
		"If the two calls of `Record` mean different events, use another key for the second event.",
	},
	"compensator.ErrNotFound": {
		"The entry was never recorded, its transaction was rolled back, or the entry was purged.",
		"Check the id or the key. If you must find entries for a longer time, raise `Keep`.",
	},
	"compensator.ErrNoResult": {
		"A service may have completed the entry, `Once` may have recorded it, or a person may have erased it.",
		"Read what you need from your own tables, or treat the work as done without a result.",
	},
	"compensator.ErrBusy": {
		"Another transaction has locked the entry's row.",
		"Try again after a moment.",
	},
	"admin.ErrChanged": {
		"The entry has changed since you read it, so the change was not made.",
		"Read the entry again, then decide again.",
	},
	"compensator.ErrAlreadySucceeded": {
		"The work of the entry is done, by the handler or by an earlier `Complete`. The error is a `*StateError`.",
		"Roll back your transaction. In a consumer of messages, acknowledge the message.",
	},
	"compensator.ErrRunning": {
		"Another `Run` of the same Compensator is running.",
		"Call `Run` once for each Compensator.",
	},
	"compensator.ErrClosed": {
		"Your program used the Compensator after `Close`.",
		"Stop recording and end `Run` before you call `Close`, as package `serve` does.",
	},
	"compensator.ErrLeaseLost": {
		"The handler's context ended with the entry's lease. Another process may run the entry.",
		"Stop the work and return. If the error comes often, set `Lease` longer than the longest pause of the process and of the database.",
	},
	"compensator.ErrCancelled": {
		"The handler's context ended: the entry was cancelled, completed or requeued.",
		"Stop the work and return.",
	},
	"compensator.ErrStopping": {
		"The handler's context ended: `Run` is ending, and two thirds of `StopTimeout` have passed.",
		"Return `ErrStopping` or `context.Canceled`. The attempt then does not count as failed, and another process runs the entry.",
	},
	"compensator.ErrTimeout": {
		"The handler's context ended: the `Timeout` of the type has passed.",
		"Return from the handler. The attempt counts as failed. Raise `Timeout` if the work needs longer.",
	},
	"compensator.FieldError": {
		"The library refuses the value that `Field` names. `Reason` says why.",
		"Correct the value. [Settings](settings.md) has the ranges, and [servers](servers.md#what-new-refuses) lists the server settings that `New` refuses.",
	},
	"compensator.OtherTypeError": {
		"An entry of another type has this idempotency key. In `InTx` and on a `Connector` the transaction cannot commit.",
		"Put the type into the key, for example `close-42` and `notify-42`.",
	},
	"compensator.StateError": {
		"The present `State` of the entry does not allow the action. The fields `CompensationBegun` and `Erased` give special reasons.",
		"Branch on `State`. For example, refund a payment that comes after its order was closed.",
	},
	"processlog.LossError": {
		"The database has lost commits, as for `ErrHistoryLost`. The error lists the entries that this process knows to be lost.",
		"Store the list that each process reports. Then follow [after a failover](../how-to/failover.md).",
	},
	"compensator.PanicError": {
		"A handler panicked or called `runtime.Goexit`. The attempt counts as failed, and the process continues. `Stack` is the stack of the goroutine.",
		"Repair the handler.",
	},
	"compensator.StuckError": {
		"Some handlers still ran when `Run` stopped waiting. Their entries run again when their leases end.",
		"Let the handlers return when their context ends, or raise `StopTimeout`.",
	},
	"processlog.SessionError": {
		"`Record` refuses the transaction because of a session variable, for example after `SET unique_checks=0`. The error wraps a `FieldError` that names the variable.",
		"Let the code that changes the variable set it back. In a transaction that the library began, the library closes the session and uses another.",
	},
	"processlog.RefusedError": {
		"A trigger, a constraint or a foreign key refuses the change. The library changed all other entries.",
		"Remove the cause on the server. The library tries the change again.",
	},
	"processlog.LeftOutError": {
		"Redis is full, or another program has a key with the name of a type's set.",
		"Give Redis more memory, or delete the other program's key. Until then the library takes the entries from the database.",
	},
	"admin.ErrContinued": {
		"Somebody continued the bulk action before you.",
		"Read the progress with `Bulk` or `compensator bulk`. If the action makes no progress, continue it again.",
	},
	"admin.ErrNotAllowed": {
		"`Access` gave this person no right to the action. The audit log records the refusal.",
		"Grant the [right](../how-to/admin.md#who-may-what), or ask somebody who has it.",
	},
	"admin.ErrReadOnly": {
		"The Admin has `ReadOnly` set.",
		"Use an Admin without `ReadOnly`. For the command line pass `--write`.",
	},
	"admin.UncheckedError": {
		"The outcome of the named entries is unknown, or the entries have ended and would run again.",
		"Find out what the attempts did. Then repeat the change with `Checked` or `Again`.",
	},
	"admin.UnknownTypeError": {
		"Neither the log nor this process has a type with this name.",
		"Correct the name. For a type that does not exist yet, use `PauseWith` with `PauseOptions.Ahead`.",
	},
	"httpcall.Error": {
		"An HTTP call got no answer, or an answer other than success. The error has the status and the beginning of the body.",
		"Return the error of `PostJSON` or `Do` unchanged, because it decides the outcome of the entry ([call a partner](../how-to/call-a-partner.md)).",
	},
	"encrypt.ErrUnknownKey": {
		"The key that encrypted the content is not among `encrypt.Config.Keys`. The attempt does not count as failed, and the entry waits.",
		"Add the key to `Keys` again. If the key was destroyed on purpose, settle or cancel the entry.",
	},
	"encrypt.ErrGarbled": {
		"Perhaps somebody changed the row, or copied the content from another entry. Perhaps the content is not encrypted and `ReadPlain` is not set. Perhaps the id of the key now belongs to another secret.",
		"Correct `Keys` or `ReadPlain`, restore the content from a backup, or settle the entry manually.",
	},
	"adopt.Refusal": {
		"`Map` returned an error or panicked, or `Record` refused the entry.",
		"Correct the row or `Map`, and run the import again. A refused row does not stop other rows.",
	},
	"gormtx.ErrCommit": {
		"Your code called `Commit` in a transaction of the library.",
		"Return nil from the handler or the function, and the library commits.",
	},
	"gormtx.ErrPrepare": {
		"A GORM `Session` with `PrepareStmt` would write outside the library's transaction.",
		"Open the session without `PrepareStmt`.",
	},
	"intake.ErrRefused": {
		"The message is too large, the codec cannot encode it, or a trigger or a constraint of your database refuses its row.",
		"Move the message to a place where a person finds it, for example a dead-letter queue.",
	},
	"rabbitmq.ErrClosed": {
		"A relay sent an entry after `Close` of its publisher.",
		"End `Run` before you close the publisher.",
	},
	"rabbitmq.ErrDeliveryLost": {
		"Your function's context ended: the connection to the broker was lost.",
		"Return from the function. The broker delivers the message again.",
	},
	"rabbitmq.ErrStream": {
		"The queue is a stream, which does not redeliver messages. So messages would be lost after a crash of the consumer.",
		"Consume from a classic or quorum queue.",
	},
	"rabbitmq.RefusedError": {
		"The broker refused the message, or no queue received the message.",
		"Correct the exchange, the routing key or the queue. Then requeue the entry.",
	},
	"relay.ErrNoAnswer": {
		"`Publish` of the watermill publisher did not return before the timeout.",
		"Check the broker and the network. The library tries the entry again.",
	},
	"relay.ErrRefused": {
		"For example, the message is too large.",
		"Set `ConsumerConfig.Refused`, which moves refused messages to a place where a person finds them.",
	},
	"relay.ErrStream": {
		"The queue is a stream, which does not redeliver messages. So messages would be lost after a crash of the consumer.",
		"Consume from a queue.",
	},
}
