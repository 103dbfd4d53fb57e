// Package people holds what people and services see and do: actions, alone and racing with attempts (G3, G4, G13), what is
// kept of them, what is read back, and what Health and the log tell.
package people
