// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Batches
//
// F107: A batch type has a backlog, or its entries are recorded one by one.
// Result: `Concurrency` limits the calls, and batches are full. Entries wait unclaimed for up to `BatchWait` to share
// a batch. A full batch does not wait.
//
// F108: An entry must follow a batch.
// Result: The entry runs when all entries of the batch have ended. The library checks this after each eighth of the
// entry's age, so the entry may start that much later. If nobody recorded the batch, the entry runs at once. An entry
// that follows its own batch waits for a person.

package claiming
