// Package howto has the code of the pages in docs/how-to that no example of the library's packages shows. The pages
// include its functions.
package howto
