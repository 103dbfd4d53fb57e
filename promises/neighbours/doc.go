// Package neighbours tests that the library does not harm the application that shares its database (G14):
//
//   - Producers never wait for a statement of the library.
//   - The library's statements cause no deadlock.
//   - A locked row delays only its own entry.
package neighbours
