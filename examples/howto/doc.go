// Package howto has functions that the pages in docs/how-to include. Other code of these pages is in the Example
// functions of the library's packages.
package howto
