// Package harness is what the packages of promises share: worlds, each a database of a test's own on throw-away servers,
// with or without Redis; handlers that count and gates that hold them up; faults on the way to a server; rows as they are
// stored; and child processes that can be killed. What one chapter alone uses stands there.
package harness
