// Package people tests the manual actions of people and services (G3, G4, G13), and what people can see.
package people
