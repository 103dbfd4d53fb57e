// Package watermilltest tests relay/watermill with real brokers.
package watermilltest
