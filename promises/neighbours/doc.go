// Package neighbours tests that the library does not harm the application that shares its database (G14).
package neighbours
