// This file lists failures that tests provoke. The comments of these tests name them. The page
// docs/internals/failures.md is generated from this list: go run ./internal/reference.
//
// # Batches
//
// F107: A batch type has a backlog, or its entries are recorded one by one.
// Result: `Concurrency` limits the calls. Entries wait unclaimed for up to `BatchWait`, and a full batch does not
// wait.
//
// F108: An entry must follow a batch.
// Result: The entry runs after all entries of the batch. If the batch has no entries, the entry runs at once. If the
// entry is in the batch itself, it waits for a person.

package claiming
