// Package harness holds what the test packages under promises share:
//
//   - worlds: a database for each test on throw-away servers, with or without Redis
//   - handlers that count their calls, and gates that block handlers
//   - network faults between the library and its servers
//   - helpers that read stored rows
//   - child processes that a test can kill
//
// Helpers that only one package uses are in that package.
package harness
