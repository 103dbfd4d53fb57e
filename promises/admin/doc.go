// Package admin tests package admin on a real server. It covers cases (G31), and actions of people with their audit
// records (G32).
package admin
