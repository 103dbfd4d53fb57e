package features

import (
	"context"
	"strings"

	"github.com/compensator-go/compensator/internal/engine"
	"github.com/compensator-go/compensator/internal/features/waiting"
	"github.com/compensator-go/compensator/processlog"
)

func init() {
	dependents = append(dependents, func(s *Set) {
		// published holds the types whose ended entries are reported to other processes. It is complete before any
		// entry ends.
		published := make(map[string]bool)
		w := waiting.New(s.Engine, func(t *engine.Type) bool { return published[t.Name] })
		s.types = append(s.types, func(t *engine.Type, settings TypeSettings) { published[t.Name] = settings.PublishEnds })
		s.Await, s.StopWaiting = w.Await, w.Close
		if s.notify == nil {
			return
		}
		w.Carry(func(ctx context.Context, ids []processlog.ID) error {
			return s.notify(ctx, []string{endsMessage(ids)})
		}, s.listen)
		s.handleMessage = func(message string) bool {
			ids, isEnds := idsOf(message)
			for _, id := range ids {
				w.Ended(id)
			}
			return isEnds
		}
	})
}

// endsPrefix is the beginning of every message about ended entries. The other messages are business types. A business
// type has no control characters, so no business type begins with endsPrefix.
const endsPrefix = "\x00ended "

func endsMessage(ids []processlog.ID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = id.String()
	}
	return endsPrefix + strings.Join(words, ",")
}

func idsOf(message string) (ids []processlog.ID, isEnds bool) {
	list, isEnds := strings.CutPrefix(message, endsPrefix)
	if !isEnds {
		return nil, false
	}
	for word := range strings.SplitSeq(list, ",") {
		if id, err := processlog.ParseID(word); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, true
}
