// Package neighbours tests that the library does not harm the application that shares its database. See promise G14 in
// docs/reference/guarantees.md.
package neighbours
