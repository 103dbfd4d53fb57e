// Package neighbours holds that the library harms nobody beside it (G14): producers wait for no statement of ours, no
// deadlock names one, and rows that somebody holds keep up nothing but themselves.
package neighbours
