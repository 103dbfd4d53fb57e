// Package rabbitmq relays entries to RabbitMQ, and a queue's failed messages into the log.
//
// # From the log to a broker
//
// An entry whose work is "publish this message" is recorded in the transaction that makes the message true. A
// [Publisher] sends it with a publisher confirm, persistent and mandatory: the entry has succeeded when the broker
// has said that it holds the message in a queue, and not before. [Handle] and [HandleBatch] register such types;
// [Publisher.Handler] and [Publisher.BatchHandler] are the handlers themselves. A [Route] says where an entry goes.
//
// A message has the entry's content as its body, untouched; the entry's idempotency key as its message id, which a
// requeue does not change; its business type as type, its CreatedAt as timestamp; the headers that travelled with the
// entry, those of the route, and in [KeyHeader] Entry.Key. A crash between the broker's confirm and the stored outcome
// sends the message again: with the same message id, by which a consumer knows it.
//
// # From a queue into the log
//
// [Consume] gives each message of a queue to a function and acknowledges it. A message whose function fails becomes an
// entry, recorded under the queue's name and the message id, and is then acknowledged: the log tries it again by the
// type's schedule, and the queue is never blocked. One that is delivered again, because its first consumer died or its
// acknowledgement was lost, goes straight into the log, whose quarantine knows how to treat what kills processes.
// [DeliveryOf] reads the message back from an entry. A message that the log refuses, because it is too large, goes to
// ConsumerConfig.RefusedQueue before it is acknowledged. While the log is away, messages are held, and no new connection consumes.
//
// # What is not promised
//
// Settings of a queue by which the broker drops messages: the README names them. Order. That a message is delivered once: consumers go by the message id. That the function of a message runs once,
// or only after its last run has ended when the connection broke in between.
package rabbitmq
