// Package compensation tests what follows an exhausted entry (G12). The compensation begins once the exhaustion is
// durable. It has its own number of attempts. It happens as often as its kind of handler promises.
package compensation
