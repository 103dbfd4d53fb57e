// Package integration has no code. Its directory is a module of tests with software that importers of the library must
// not download.
package integration
