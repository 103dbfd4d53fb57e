// Package harness holds helpers that the test packages in the folder promises share. The helpers make a database for each
// test, handlers that count their calls, network faults, and child processes that a test can kill.
package harness
