// Package compensation tests what follows an exhausted entry (G12):
//
//   - The compensation begins once the exhaustion is durable.
//   - The compensation has its own maximum of attempts.
//   - A compensation in your own transaction takes effect once. Any other compensation may run more than once.
package compensation
