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
	types, err := runQuery(ctx, d, d.log.Operations().Types)
	if err != nil {
		return err
	}
	mayRead := d.rightsOf(a, SeeEntries)
	types = slices.DeleteFunc(types, func(name string) bool { return !mayRead.holds(ctx, name) })
	if slices.Contains(types, businessType) || d.log.Knows(businessType) && mayRead.holds(ctx, businessType) {
		return nil
	}
	return &UnknownTypeError{Type: businessType, Near: similarNames(businessType, types)}
}

// checkPaused also works for an actor who has the right Pause but not SeeEntries.
func (d *Admin) checkPaused(ctx context.Context, a Actor, businessType string) error {
	if d.log.Knows(businessType) {
		return nil
	}
	types, err := runQuery(ctx, d, d.log.Operations().Types) // Read the types now, because the cached types may lack a new type.
	if err != nil || slices.Contains(types, businessType) {
		return err
	}
	mayRead := d.rightsOf(a, SeeOverview)
	types = slices.DeleteFunc(types, func(name string) bool { return !mayRead.holds(ctx, name) })
	return &UnknownTypeError{Type: businessType, Near: similarNames(businessType, types)}
}

func similarNames(wanted string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var candidates []candidate
	wanted = strings.ToLower(wanted)
	length := utf8.RuneCountInString(wanted)
	maxEdits := max(length/3, min(length/2, 2)) // Two exchanged letters are two edits.
	for _, name := range names {
		lowerName := strings.ToLower(name)
		distance := editDistance(wanted, lowerName)
		if distance <= maxEdits || len(wanted) > 2 && (strings.HasPrefix(lowerName, wanted) || strings.HasPrefix(wanted, lowerName)) {
			candidates = append(candidates, candidate{name, distance})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return a.distance - b.distance })
	var similar []string
	for _, c := range candidates[:min(len(candidates), 3)] {
		similar = append(similar, c.name)
	}
	return similar
}

// editDistance returns the Levenshtein distance.
func editDistance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j := range to {
			replaced := diagonal
			if from[i] != to[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(to)]
}
