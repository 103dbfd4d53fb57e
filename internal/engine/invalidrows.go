package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/grouped"
	"github.com/compensator-go/compensator/processlog"
)

const (
	invalidRowsEvery  = 10 * time.Minute
	invalidRowsSought = 100
	invalidRowsNamed  = 3 // with each reason
)

// lookForInvalidRows tells of entries that are never due, leased by nobody, or in no state there is: others may record by plain
// SQL, and what they get wrong would wait in silence.
func (r *reconciler) lookForInvalidRows(ctx context.Context) {
	finder, ok := r.Store.(processlog.InvalidRowFinder)
	if !ok || !r.looked.IsZero() && time.Since(r.looked) < invalidRowsEvery {
		return
	}
	r.looked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	found, err := finder.InvalidRows(ctx, invalidRowsSought)
	if err != nil {
		r.saw(ctx, err)
		return
	}
	r.Base.Saw(problemInvalidRows, invalidRowsError(found))
}

// invalidRowsError names some with each reason.
func invalidRowsError(found []processlog.InvalidRow) error {
	if len(found) == 0 {
		return nil
	}
	var lines []string
	reasons := grouped.By(found, func(m processlog.InvalidRow) string { return m.Why })
	for _, why := range reasons.Order {
		var named []string
		for _, m := range reasons.Groups[why][:min(invalidRowsNamed, len(reasons.Groups[why]))] {
			named = append(named, fmt.Sprintf("entry %s of type %q", m.ID, m.BusinessType))
		}
		if more := len(reasons.Groups[why]) - len(named); more > 0 {
			named = append(named, fmt.Sprintf("%d more", more))
		}
		lines = append(lines, strings.Join(named, ", ")+": "+why)
	}
	return errors.New(strings.Join(lines, "; "))
}
