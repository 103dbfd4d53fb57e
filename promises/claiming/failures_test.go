// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Batches
//
// F107: A batch type has a backlog, or entries recorded apart.
// Result: `Concurrency` counts calls, and batches are full. Entries share a batch within `BatchWait`, unclaimed
// meanwhile. A full batch does not wait.
//
// F108: An entry must follow a batch.
// Result: It runs once all entries of the batch have ended, late by an eighth of the time. After a batch that nobody
// recorded it runs at once. One that follows its own batch waits for a person.

package claiming
