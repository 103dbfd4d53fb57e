// Package ent is a generated client for the tests of package orms. Only the schema and this file are written manually.
package ent

//go:generate go run entgo.io/ent/cmd/ent@v0.14.5 generate --feature sql/execquery ./schema
