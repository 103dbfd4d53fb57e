// Package commits holds what the end of a transaction means for the entries in it: committed ones run, however
// late, whoever ended it and whatever became of the answer (G1), and what was rolled back leaves no trace (G2); the
// commit itself waits for nobody (G10, G14), and one whose end is unknown is resolved to what happened.
package commits
