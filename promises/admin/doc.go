// Package admin holds what people see and do through package admin, on a real server: a case for each entry that dies, with
// its death (G31), an action that is one transaction with its record and never done twice (G32), and that who does not turn
// it on meets none of it.
package admin
