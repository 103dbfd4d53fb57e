// Package settling holds the way of an outcome into the database: once, fenced, behind locks, through outages and lost
// answers, and before the queue is told (G5, G8).
package settling
