package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodCSV = "user,name,email\nu1,Ann,ann@example.org\nu2,Ben,ben@example.org\n"

func read(text string) (upload, error) {
	users, err := readUsers(strings.NewReader(text))
	u := upload{Batch: "b", Operator: "op", Trace: "t", Users: users}
	if err != nil {
		return u, err
	}
	return u, u.validate()
}

func TestUploadIsReadInAnyOrderOfItsColumns(t *testing.T) {
	t.Parallel()
	wanted, err := read(goodCSV)
	require.NoError(t, err)
	got, err := read("\ufeffemail, user,name\nann@example.org,u1,Ann\nben@example.org, u2,Ben\n")
	require.NoError(t, err)
	require.Equal(t, wanted, got)
	require.Equal(t, wanted.digest(), got.digest())
	again, err := readUsers(strings.NewReader(string(writeUsers(wanted.Users))))
	require.NoError(t, err)
	require.Equal(t, wanted.Users, again)
}

func TestBadUploadIsRefusedByTheNameOfItsField(t *testing.T) {
	t.Parallel()
	tooMany := "user,name,email\n"
	for i := range mostUsers + 1 {
		tooMany += fmt.Sprintf("u%d,Ann,ann@example.org\n", i)
	}
	for text, field := range map[string]string{
		"":                                   "users",
		"user,name,email\n":                  "users",
		tooMany:                              "users",
		"user,name,email\nu1,Ann\n":          "users", // a column is missing
		"user,name,email\n\"u1,Ann\n":        "users", // an unclosed quote
		"user,name,email,phone\na,b,c,d":     "phone",
		"user,name\nu1,Ann\n":                "email",
		"user,user,name,email\n":             "user",
		goodCSV + "u1,Ann,ann@example.org\n": "user",
		"user,name,email\nu 1,Ann,ann@example.org\n":                    "user",
		"user,name,email\nu1,,ann@example.org\n":                        "name",
		"user,name,email\nu1," + strings.Repeat("n", 65) + ",a@b.org\n": "name",
		"user,name,email\nu1,Ann,ann\n":                                 "email",
		"user,name,email\nu1,Ann,\xff@example.org\n":                    "email",
	} {
		_, err := read(text)
		var bad *refusal
		require.ErrorAs(t, err, &bad, "%.60q", text)
		require.Equal(t, field, bad.Field, "%.60q: %v", text, err)
		require.NotEmpty(t, bad.Reason)
	}
}

func TestBadNamesOfAnUploadAreRefused(t *testing.T) {
	t.Parallel()
	good, err := read(goodCSV)
	require.NoError(t, err)
	for field, spoil := range map[string]func(*upload){
		"batch":    func(u *upload) { u.Batch = "a/b" },
		"operator": func(u *upload) { u.Operator = "" },
		"trace":    func(u *upload) { u.Trace = strings.Repeat("t", 65) },
	} {
		spoiled := good
		spoil(&spoiled)
		var bad *refusal
		require.ErrorAs(t, spoiled.validate(), &bad)
		require.Equal(t, field, bad.Field)
	}
}

// A user's fate depends only on the user and the seed, so the library and the hand-written version meet the same
// faults.
func TestFateIsDecidedBySeedAndUser(t *testing.T) {
	t.Parallel()
	kinds := make(map[string]int)
	for _, u := range sample("b", 5000, 1) {
		f := fateOf(u, 1)
		require.Equal(t, f, fateOf(u, 1))
		for kind, ok := range map[string]bool{"slow": f.slow >= 50_000_000, "lost": f.vanishes(0), "forgotten": f.slips(f.lost), "hangs": f.hangs == 1,
			"fails": f.fails > 0, "hopeless": f.hopeless(), "refused": f.refused} {
			if ok {
				kinds[kind]++
			}
		}
	}
	require.InDelta(t, 2500, kinds["slow"], 150)
	require.InDelta(t, 600, kinds["lost"], 120)
	require.InDelta(t, 250, kinds["forgotten"], 80)
	require.InDelta(t, 400, kinds["hangs"], 100)
	require.InDelta(t, 500, kinds["fails"], 110)
	require.InDelta(t, 100, kinds["hopeless"], 50)
	require.InDelta(t, 50, kinds["refused"], 35)
}
