// Package people tests the manual actions of people and services, and what people can see. See promises G3, G4 and G13
// in docs/reference/guarantees.md.
package people
