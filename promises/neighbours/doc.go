// Package neighbours tests that the library does not harm the application beside it (G14). Producers wait for none of
// its statements. Its statements cause no deadlock. A locked row delays only its own entry.
package neighbours
