// Package watermilltest tests relay/watermill with real brokers. It is a separate module, so that importers of
// relay/watermill do not depend on the clients of these brokers.
package watermilltest
