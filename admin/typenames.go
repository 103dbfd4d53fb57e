package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
)

// UnknownTypeError says that a business type is unknown to the log and to the process that serves the Admin. errors.Is
// reports that it is compensator.ErrNotFound.
type UnknownTypeError struct {
	Type string   // name that was not found
	Near []string // up to three similar names of types that the actor may see
}

// Error names the type and the similar types.
func (e *UnknownTypeError) Error() string {
	text := fmt.Sprintf("admin: there is no business type %q here", e.Type)
	if len(e.Near) == 0 {
		return text
	}
	quoted := make([]string, len(e.Near))
	for i, name := range e.Near {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return text + "; did you mean " + strings.Join(quoted, " or ") + "?"
}

// Unwrap returns compensator.ErrNotFound.
func (e *UnknownTypeError) Unwrap() error { return compensator.ErrNotFound }

// CheckType returns nil if the actor sees a type of this name. If not, it returns an *UnknownTypeError, which is the
// same for a hidden type and for an absent type. It needs SeeEntries.
func (d *Admin) CheckType(ctx context.Context, a Actor, businessType string) error {
	types, err := read(ctx, d, d.log.Operations().Types)
	if err != nil {
		return err
	}
	sees := d.sight(a, SeeEntries)
	types = slices.DeleteFunc(types, func(name string) bool { return !sees.sees(ctx, name) })
	if slices.Contains(types, businessType) || d.log.Knows(businessType) && sees.sees(ctx, businessType) {
		return nil
	}
	return &UnknownTypeError{Type: businessType, Near: near(businessType, types)}
}

// checkPaused does the same as CheckType, also for an actor who has the right Pause without SeeEntries.
func (d *Admin) checkPaused(ctx context.Context, a Actor, businessType string) error {
	if d.log.Knows(businessType) {
		return nil
	}
	types, err := read(ctx, d, d.log.Operations().Types) // Read the types now, because the cached types may lack a new type.
	if err != nil || slices.Contains(types, businessType) {
		return err
	}
	sees := d.sight(a, SeeOverview)
	types = slices.DeleteFunc(types, func(name string) bool { return !sees.sees(ctx, name) })
	return &UnknownTypeError{Type: businessType, Near: near(businessType, types)}
}

// near returns the names that the actor may have meant, the most similar first.
func near(typed string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	typed = strings.ToLower(typed)
	length := utf8.RuneCountInString(typed)
	most := max(length/3, min(length/2, 2)) // Two exchanged letters are two edits.
	for _, name := range names {
		lower := strings.ToLower(name)
		distance := edits(typed, lower)
		if distance <= most || len(typed) > 2 && (strings.HasPrefix(lower, typed) || strings.HasPrefix(typed, lower)) {
			found = append(found, candidate{name, distance})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return a.distance - b.distance })
	var all []string
	for _, c := range found[:min(len(found), 3)] {
		all = append(all, c.name)
	}
	return all
}

// edits returns the Levenshtein distance: the number of letters to insert, delete or replace to turn a into b.
func edits(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		before := row[0]
		row[0] = i + 1
		for j := range to {
			changed := before
			if from[i] != to[j] {
				changed++
			}
			before = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
