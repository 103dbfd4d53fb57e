package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

type user struct {
	ID    string `json:"user"`
	Name  string `json:"name"`
	Email string `json:"email"`
}

type upload struct {
	Batch    string // permanent name of the batch; a second upload with the same name is the same batch
	Operator string
	Trace    string // stored with every message and in the directory
	Users    []user
}

const (
	mostUsers = 5_000
	mostBytes = 2 << 20
	mostText  = 64 // characters of a name, an e-mail address or an operator
)

// The order of the columns does not matter.
var columns = []string{"user", "name", "email"}

// After a refusal, no part of the upload is stored.
type refusal struct {
	Field  string `json:"field"`
	Reason string `json:"error"`
}

func (r *refusal) Error() string { return r.Field + ": " + r.Reason }

func refuse(field, reason string, args ...any) error {
	return &refusal{Field: field, Reason: fmt.Sprintf(reason, args...)}
}

var (
	batchPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,40}$`)
	userPattern  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	tracePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// validate counts rows as lines of the file, so the first user is line 2.
func (u *upload) validate() error {
	switch {
	case !batchPattern.MatchString(u.Batch):
		return refuse("batch", "%q: want 1 to 40 of A-Z a-z 0-9 _ . -", u.Batch)
	case !isText(u.Operator):
		return refuse("operator", "%q: want 1 to %d characters", u.Operator, mostText)
	case !tracePattern.MatchString(u.Trace):
		return refuse("trace", "%q: want 1 to 64 of A-Z a-z 0-9 _ . -", u.Trace)
	case len(u.Users) == 0:
		return refuse("users", "the batch is empty")
	case len(u.Users) > mostUsers:
		return refuse("users", "more than %d", mostUsers)
	}
	lines := make(map[string]int, len(u.Users))
	for i, one := range u.Users {
		line := i + 2
		if err := one.validate(line); err != nil {
			return err
		}
		if first, twice := lines[one.ID]; twice {
			return refuse("user", "line %d: %q is already in line %d", line, one.ID, first)
		}
		lines[one.ID] = line
	}
	return nil
}

func (u user) validate(line int) error {
	switch {
	case !userPattern.MatchString(u.ID):
		return refuse("user", "line %d: %q: want 1 to 64 of A-Z a-z 0-9 _ . -", line, u.ID)
	case !isText(u.Name):
		return refuse("name", "line %d: %q: want 1 to %d characters", line, u.Name, mostText)
	case !isText(u.Email), !strings.Contains(u.Email, "@"):
		return refuse("email", "line %d: %q is not an address of at most %d characters", line, u.Email, mostText)
	}
	return nil
}

func isText(s string) bool {
	n := utf8.RuneCountInString(s)
	return utf8.ValidString(s) && n >= 1 && n <= mostText && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' })
}

func readUsers(body io.Reader) ([]user, error) {
	rows := csv.NewReader(body)
	rows.TrimLeadingSpace = true
	header, err := rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, refuse("users", "the batch is empty")
	case err != nil:
		return nil, refuseCSV(err)
	}
	place, err := places(header)
	if err != nil {
		return nil, err
	}
	var users []user
	for len(users) <= mostUsers {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return users, nil
		case err != nil:
			return nil, refuseCSV(err)
		}
		users = append(users, user{ID: row[place["user"]], Name: row[place["name"]], Email: row[place["email"]]})
	}
	return users, nil
}

func places(header []string) (map[string]int, error) {
	place := make(map[string]int)
	for i, column := range header {
		column = strings.TrimSpace(strings.TrimPrefix(column, "\ufeff")) // Spreadsheets write a byte order mark.
		if !slices.Contains(columns, column) {
			return nil, refuse(column, "unknown column; want %s", strings.Join(columns, ", "))
		}
		if _, twice := place[column]; twice {
			return nil, refuse(column, "this column occurs twice")
		}
		place[column] = i
	}
	for _, column := range columns {
		if _, isFound := place[column]; !isFound {
			return nil, refuse(column, "this column is missing")
		}
	}
	return place, nil
}

func refuseCSV(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return refuse("users", "%v", bad)
	}
	return fmt.Errorf("read the upload: %w", err)
}

func writeUsers(users []user) []byte {
	var text bytes.Buffer
	rows := csv.NewWriter(&text)
	_ = rows.Write(columns) // Writing to a buffer never fails.
	for _, u := range users {
		_ = rows.Write([]string{u.ID, u.Name, u.Email})
	}
	rows.Flush()
	return text.Bytes()
}

func (u *upload) digest() string {
	sum := sha256.Sum256(writeUsers(u.Users))
	return hex.EncodeToString(sum[:])
}
