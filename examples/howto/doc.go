// Package howto has functions that the pages in docs/how-to include.
package howto
