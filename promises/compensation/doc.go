// Package compensation holds what follows an exhausted entry: a compensation that begins once that is durable, has
// a budget of its own and happens as often as its kind promises (G12).
package compensation
