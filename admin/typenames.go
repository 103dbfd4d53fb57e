package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
)

// UnknownTypeError says that a business type is known neither to the log nor to the process that serves the Admin. It is a
// compensator.ErrNotFound.
type UnknownTypeError struct {
	Type string
	Near []string // up to three types of a similar name that the actor may see
}

// Error names the type and the similar ones.
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

// Unwrap is compensator.ErrNotFound.
func (e *UnknownTypeError) Unwrap() error { return compensator.ErrNotFound }

// CheckType returns an *UnknownTypeError where the actor sees no type of this name, and nil where he does. It wants SeeEntries: a
// type that may not be seen is as unknown as one that is not there.
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

// checkPaused is CheckType for somebody who may pause the type, whether he sees it or not.
func (d *Admin) checkPaused(ctx context.Context, a Actor, businessType string) error {
	if d.log.Knows(businessType) {
		return nil
	}
	types, err := read(ctx, d, d.log.Operations().Types) // as they are now: the type may be new
	if err != nil || slices.Contains(types, businessType) {
		return err
	}
	sees := d.sight(a, SeeOverview)
	types = slices.DeleteFunc(types, func(name string) bool { return !sees.sees(ctx, name) })
	return &UnknownTypeError{Type: businessType, Near: near(businessType, types)}
}

// near are the names that somebody may have meant, the most similar first.
func near(typed string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	typed = strings.ToLower(typed)
	length := utf8.RuneCountInString(typed)
	most := max(length/3, min(length/2, 2)) // two letters that were exchanged are two edits
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

// edits is how many letters must be put in, taken out or changed to make one text of the other (Levenshtein).
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
