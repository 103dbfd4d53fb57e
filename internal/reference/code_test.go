package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIdentifiersInCommentsAreMarkedAsCode(t *testing.T) {
	known := names{"Types": true, "Serial": true, "Record": true, "Time": true, "Dead": true, "Refusal": true, "Health": true, "Redis": true, "Key": true, "Table": true}
	for comment, want := range map[string]string{
		"Time that a case may wait, if Types has no Due.":  "Time that a case may wait, if `Types` has no Due.",
		"Serial gets an entry. Record calls Serial.":       "`Serial` gets an entry. `Record` calls `Serial`.",
		"Record and each attempt wait. Record the entry.":  "`Record` and each attempt wait. Record the entry.",
		"Table, Key and others. Dead entries stay.":        "`Table`, `Key` and others. Dead entries stay.",
		"See package admin and Config.Keep.":               "See package `admin` and `Config.Keep`.",
		"Returns a *Refusal or a *sql.DB, never nil.":      "Returns a `*Refusal` or a `*sql.DB`, never `nil`.",
		"Default Exponential(1 s, 10 min), of MaxAttempts": "Default `Exponential(1 s, 10 min)`, of `MaxAttempts`",
		"Redis and RabbitMQ say \"Health_a\" to `work`.":   "Redis and RabbitMQ say \"Health\\_a\" to `work`.",
		"The column last_error; compensator.log; A to Z.":  "The column `last_error`; `compensator.log`; A to Z.",
		"It is 2 * 3 of <x>. The Unknown stays.":           "It is 2 \\* 3 of \\<x\\>. The Unknown stays.",
	} {
		assert.Equal(t, want, known.code(comment, "Serial"))
	}
	assert.Equal(t, "`Time` of day", known.code("Time of day", "Time"), "a comment that begins with its identifier")
}

func TestExportedNamesAndFieldsAreKnown(t *testing.T) {
	s := &source{fset: token.NewFileSet()}
	file, err := parser.ParseFile(s.fset, "", "package p\ntype Config struct { Due, own int }\nconst Most = 1\nvar ErrNone error\nfunc New() {}\nfunc (Config) Close() {}\nfunc local() {}", 0)
	require.NoError(t, err)
	s.files = []*ast.File{file}
	known := s.exported()
	assert.Equal(t, names{"Config": true, "Most": true, "ErrNone": true, "New": true, "Close": true}, known)
	fields := file.Scope.Lookup("Config").Decl.(*ast.TypeSpec).Type.(*ast.StructType)
	assert.Equal(t, names{"Config": true, "Most": true, "ErrNone": true, "New": true, "Close": true, "Due": true}, known.with(fields))
}

func TestListInACommentStaysAList(t *testing.T) {
	assert.Equal(t, "It gets:\n\n- one\n- two lines\n\nAnd more.", markdown("it gets:\n  - one\n  - two\n    lines\n\nAnd more", escaped))
}
