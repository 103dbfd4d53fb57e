// Package watermilltest holds the tests of relay/watermill with real brokers. It is a module of its own, so that whoever
// imports relay/watermill never sees their clients.
package watermilltest
