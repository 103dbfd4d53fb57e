package main

// advice says where an error comes from and what to do about it.
type advice struct{ cause, do string }

var errorAdvice = map[string]advice{
	"compensator.ErrNoTransaction": {
		"`Record` got a handle without an open transaction: a pool, a finished transaction, or a session in autocommit. Without this check the entry would be durable before the business change. No row was written.",
		"Pass the `*sql.Tx` or the ORM's transaction that makes the business change. See [use it with an ORM](../how-to/orms.md).",
	},
	"compensator.ErrTxAborted": {
		"The server rolled the transaction back by itself, for example after a deadlock or a lock wait. The handle of the transaction still looks open. `errors.Is` also finds `ErrNoTransaction` in this error.",
		"Roll back and run the whole transaction again. `WithRetry` does so.",
	},
	"compensator.ErrNotRecorded": {
		"An entry of this transaction was refused or could not be written, and the program ignored that error. `Commit` rolled back, so that no half of the work is stored.",
		"Handle the error of `Record`: roll back and report it.",
	},
	"compensator.ErrCommitUnknown": {
		"The connection broke around COMMIT. You do not know whether the transaction has committed.",
		"Call `Resolve` with the idempotency key of an entry of the transaction. `WithRetry` does so by itself.",
	},
	"compensator.ErrHistoryLost": {
		"The database has lost commits that this process has seen, for example because a lagging replica was promoted or a backup was restored. Entries still run. With `StopOnLoss` the process starts no entry until a person calls `AcceptLoss`. The error is a `*LossError`.",
		"Follow [after a failover](../how-to/failover.md). Do not restart the processes, because only they know which entries were lost.",
	},
	"compensator.ErrDuplicate": {
		"`Options.FailOnDuplicate` is set, and an entry with this idempotency key exists.",
		"Treat the event as recorded, or roll back if you have written rows before.",
	},
	"compensator.ErrOtherContent": {
		"`RefuseOtherContent` is set, and the entry with this idempotency key has another content. The transaction cannot commit.",
		"Find out whether both calls mean the same event. If they are two events, use another key for the second one.",
	},
	"compensator.ErrNotFound": {
		"No entry has this id or key. The entry was never recorded, was rolled back, or was purged.",
		"Check the key. If entries must be found for longer, raise `Keep`.",
	},
	"compensator.ErrNoResult": {
		"The entry has succeeded, but no handler of its present epoch returned a result. A service may have completed it, `Once` may have recorded it, or a person may have erased it.",
		"Read what you need from your own tables, or treat the work as done without a result.",
	},
	"compensator.ErrBusy": {
		"Another transaction holds a lock on the entry's row.",
		"Try again after a moment.",
	},
	"admin.ErrChanged": {
		"The entry has changed since it was read, so the change was not made.",
		"Read the entry again and decide again.",
	},
	"compensator.ErrAlreadySucceeded": {
		"`Complete` found that the work is done, by the handler or by an earlier `Complete`. The error is a `*StateError`.",
		"Roll back, and do not do the work again. A consumer acknowledges the message, because its work is done.",
	},
	"compensator.ErrRunning": {
		"`Run` was called while another `Run` of the same Compensator is running.",
		"Call `Run` once for each Compensator.",
	},
	"compensator.ErrClosed": {
		"The Compensator was closed.",
		"Stop recording and end `Run` before you call `Close`. Package `serve` keeps this order.",
	},
	"compensator.ErrLeaseLost": {
		"The handler's context ended, because its lease was lost, and the entry may run elsewhere.",
		"Stop the work and return. If this happens often, set a longer `Lease` than the longest pause of the process and the database.",
	},
	"compensator.ErrCancelled": {
		"The handler's context ended, because the entry was cancelled, completed or requeued while it ran.",
		"Stop the work and return.",
	},
	"compensator.ErrStopping": {
		"The handler's context ended, because `Run` is ending, and two thirds of `StopTimeout` have passed.",
		"Return this error or `context.Canceled`. The attempt is not counted, and another process runs the entry.",
	},
	"compensator.ErrTimeout": {
		"The handler's context ended, because the `Timeout` of the type has passed.",
		"Return. The attempt counts. Raise `Timeout` if the work needs longer.",
	},
	"compensator.FieldError": {
		"The library refuses a value. `Field` names the value, and `Reason` says why it is refused.",
		"Correct the value. [Settings](settings.md) has the ranges, and [servers](servers.md#what-new-refuses) has what `New` refuses about a server.",
	},
	"compensator.OtherTypeError": {
		"The idempotency key belongs to an entry of another type. In `InTx` and on a `Connector` the transaction cannot commit.",
		"Put the type into the key, for example `close-42` and `notify-42`.",
	},
	"compensator.StateError": {
		"The present state of the entry does not allow the action. `State` has this state. `CompensationBegun` and `Erased` give special reasons.",
		"Branch on `State`. For example, if a payment cannot cancel the entry that closed its order, refund the payment.",
	},
	"processlog.LossError": {
		"The same as `ErrHistoryLost`, with the list of entries that this process knows to be lost.",
		"Keep the list of each process. Then follow [after a failover](../how-to/failover.md).",
	},
	"compensator.PanicError": {
		"A handler panicked, or ended its goroutine with `runtime.Goexit`. The attempt counts. `Stack` has the place in the code.",
		"Repair the handler. The process continues.",
	},
	"compensator.StuckError": {
		"Handlers still ran when `Run` stopped waiting for them. The entries of these handlers run again when their leases end.",
		"Make the named handlers return when their context ends, or raise `StopTimeout`.",
	},
	"processlog.SessionError": {
		"`Record` writes nothing in the session of this transaction, for example after `SET unique_checks=0`. The error wraps a `FieldError` that names the variable.",
		"Find the code that changes the variable, and let it set the variable back. In its own transactions the library closes the session, and another one takes the entry.",
	},
	"processlog.RefusedError": {
		"A trigger, a constraint or a foreign key makes the database refuse a change of these entries. All other entries were changed.",
		"Remove the cause on the server. The library tries the change again.",
	},
	"processlog.LeftOutError": {
		"The queue had no room for some entries, because Redis is full, or because another program uses the name of a type's set for its own key.",
		"Give Redis more memory, or delete the other key. Until then the library takes the entries from the database.",
	},
	"admin.ErrContinued": {
		"Another person or process stored the next batch of the same action first.",
		"Nothing. Read the action with `Bulk`, or with `compensator bulk`. If it stands still, continue it again.",
	},
	"admin.ErrNotAllowed": {
		"`Access` did not allow the action to this person. The refusal is recorded.",
		"Grant the right, or ask somebody who has it. See [rights](../how-to/admin.md#who-may-what).",
	},
	"admin.ErrReadOnly": {
		"The Admin is read-only, so it made no change.",
		"Use an Admin without `ReadOnly`. For the command line pass `--write`.",
	},
	"admin.UncheckedError": {
		"The outcome of these entries is unknown, or they have ended and would run again. So `Change` changed no entry.",
		"Find out what the attempts did. Then repeat the change with `Checked` or `Again`.",
	},
	"admin.UnknownTypeError": {
		"Neither the log nor this process knows the type. The name is probably mistyped.",
		"Correct the name. Use `PauseWith` with `PauseOptions.Ahead` for a type that does not exist yet.",
	},
	"httpcall.Error": {
		"An HTTP call of a handler was not answered with success. The error has the status and the beginning of the body.",
		"Return the error of `PostJSON` or `Do` unchanged. The error decides the outcome of the entry. See [call a partner](../how-to/call-a-partner.md).",
	},
	"encrypt.ErrUnknownKey": {
		"The key that encrypted the content is not among `encrypt.Config.Keys`. No attempt is counted, and the entry waits.",
		"Add the key to `Keys` again. If the key was destroyed on purpose, settle or cancel the entry.",
	},
	"encrypt.ErrGarbled": {
		"The content is not what the codec encrypted. Somebody has changed the row or copied the content from another entry. Or the content is not encrypted and `ReadPlain` is not set, or the key id has another secret now.",
		"Find out which of these is the cause. Correct `Keys` or `ReadPlain`, restore the content from a backup, or settle the entry manually.",
	},
	"adopt.Refusal": {
		"A row of the old table cannot become an entry, because `Map` returned an error or panicked, or `Record` refused the entry.",
		"Correct the row or `Map`, and run the import again. A refused row does not stop other rows.",
	},
	"gormtx.ErrCommit": {
		"Your code called `Commit` in a transaction of the library. Only the library may commit it.",
		"Return nil from the handler or the function instead.",
	},
	"gormtx.ErrPrepare": {
		"Your code opened a GORM `Session` with `PrepareStmt` in a transaction of the library. Such a session would write outside the transaction.",
		"Open the session without `PrepareStmt`.",
	},
	"intake.ErrRefused": {
		"The log will never accept the message of a `Recorder`. No entry can hold it, a trigger or constraint of yours refuses it, or the codec cannot encode it.",
		"Move the message to a place where a person finds it, for example to a dead-letter queue of the broker.",
	},
	"rabbitmq.ErrClosed": {
		"The publisher was closed.",
		"End `Run` before you close the publisher.",
	},
	"rabbitmq.ErrDeliveryLost": {
		"The context of a consumer's function ended, because the connection was lost while the message was being processed.",
		"Return. The broker delivers the message again.",
	},
	"rabbitmq.ErrStream": {
		"The queue is a stream, which does not deliver again.",
		"Consume from a classic or quorum queue.",
	},
	"rabbitmq.RefusedError": {
		"The broker refused the message, or no queue takes it.",
		"Correct the exchange, the routing key or the queue. Then requeue the entry.",
	},
	"relay.ErrNoAnswer": {
		"`Publish` of the watermill publisher did not return in time.",
		"Look at the broker and the network. The entry is tried again.",
	},
	"relay.ErrRefused": {
		"The log refuses the message, for example because it is too large.",
		"Set `ConsumerConfig.Refused`, so that a person finds such messages.",
	},
	"relay.ErrStream": {
		"The message comes from a RabbitMQ stream, which does not deliver again.",
		"Consume from a queue.",
	},
}
