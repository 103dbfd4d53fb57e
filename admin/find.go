package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
)

// Limits on the queries of Find and Near.
const (
	minPrefix     = 3  // minimum length of a text for which the method Near looks for similar ids
	maxNear       = 5  // maximum number of ids that Near returns
	sampledIDs    = 50 // maximum number of stored ids that one query reads. Near then looks among them for ids like the searched text
	maxVariants   = 12 // maximum number of spellings that the method Near tries. In each spelling, two neighbouring letters are exchanged
	maxBeginnings = 4  // maximum number of beginnings of other ids, such as "o-", that the method Near puts before the text
)

// IDKind is the kind of an id, for example a business id or a batch id.
type IDKind string

const (
	KindBusiness    IDKind = "business" // Entry.BusinessID
	KindBusinessExt IDKind = "ext"      // Entry.BusinessExtID
	KindBatch       IDKind = "batch"    // Entry.BatchID
	KindEntry       IDKind = "entry"    // Entry.ID
)

// Filter returns the filter that lists the entries with this id. For KindEntry it returns a filter without id.
func (k IDKind) Filter(id string, isPrefix bool) Filter {
	switch f := (Filter{Prefix: isPrefix}); k {
	case KindBusiness:
		f.BusinessID = id
		return f
	case KindBusinessExt:
		f.BusinessExtID = id
		return f
	case KindBatch:
		f.BatchID = id
		return f
	}
	return Filter{}
}

// listedKinds are the kinds of ids that have an index, the most common first.
var listedKinds = []IDKind{KindBusiness, KindBusinessExt, KindBatch}

// Match is the result of Find: the kind of id in which the text was found.
type Match struct {
	Kind   IDKind `json:"kind"`             // empty: the text finds no entry
	Prefix bool   `json:"prefix,omitempty"` // whether the ids only begin with the text
}

// Find looks for entries that have a text as their business id, external business id or batch id. If there are none,
// Find looks for ids that begin with the text. Find needs SeeEntries. It finds only entries of types that the actor may
// see.
func (d *Admin) Find(ctx context.Context, a Actor, text string) (Match, error) {
	if text == "" {
		return Match{}, nil
	}
	for _, isPrefix := range []bool{false, true} {
		for _, kind := range listedKinds {
			ids, err := d.idsLike(ctx, a, kind, text, isPrefix, 1)
			if err != nil {
				return Match{}, err
			}
			if len(ids) > 0 {
				return Match{kind, isPrefix}, nil
			}
		}
	}
	return Match{}, nil
}

// NearID is an id that a person may have meant.
type NearID struct {
	Kind IDKind `json:"kind"` // which id it is
	ID   string `json:"id"`   // the stored id, as a filter takes it
}

// Near returns up to 5 ids that are similar to a text for which no entry was found. It needs SeeEntries, and takes ids
// only from entries of types that the actor may see. Near sends at most 30 queries, each of which reads one page.
func (d *Admin) Near(ctx context.Context, a Actor, text string) ([]NearID, error) {
	length := utf8.RuneCountInString(text)
	if length < minPrefix || length > 64 || !utf8.ValidString(text) { // No stored id is longer.
		return nil, nil
	}
	search := &nearSearch{d: d, actor: a, text: text, isSeen: map[NearID]bool{}}
	for _, step := range []func(ctx context.Context) error{search.addEntryIDs, search.addPrefixes, search.addBeginnings, search.addExchanged, search.addShortened} {
		if err := step(ctx); err != nil {
			return nil, err
		}
		if len(search.found) >= maxNear {
			break
		}
	}
	return search.found[:min(len(search.found), maxNear)], nil
}

type nearSearch struct {
	d      *Admin
	actor  Actor
	text   string
	found  []NearID
	isSeen map[NearID]bool
}

func (s *nearSearch) add(kind IDKind, ids ...string) {
	for _, id := range ids {
		if near := (NearID{kind, id}); id != s.text && !s.isSeen[near] {
			s.isSeen[near] = true
			s.found = append(s.found, near)
		}
	}
}

// addEntryIDs tries another last digit, and two digits exchanged.
func (s *nearSearch) addEntryIDs(ctx context.Context) error {
	number, err := compensator.ParseEntryID(strings.TrimPrefix(s.text, "#"))
	if err != nil {
		return nil // The text is not a number, so no id of an entry resembles it.
	}
	digits := number.String()
	variants := append(exchanged(digits), digits[:len(digits)-1])
	for digit := range 10 {
		variants = append(variants, fmt.Sprint(digits, digit), fmt.Sprint(digits[:len(digits)-1], digit))
	}
	var ids []compensator.EntryID
	for _, variant := range variants {
		if id, err := compensator.ParseEntryID(variant); err == nil && id != number && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	rows, err := s.d.outlines(ctx, s.actor, ids)
	for _, row := range rows {
		s.add(KindEntry, row.ID.String())
	}
	s.found = s.found[:min(len(s.found), maxNear/2)] // Leave room for ids of other kinds, for example business ids.
	return err
}

// addPrefixes tries the text as it is, in small letters and in capitals.
func (s *nearSearch) addPrefixes(ctx context.Context) error {
	spellings := slices.Compact([]string{s.text, strings.ToLower(s.text), strings.ToUpper(s.text)})
	for _, kind := range listedKinds {
		for _, spelling := range spellings {
			ids, err := s.d.idsLike(ctx, s.actor, kind, spelling, true, maxNear)
			if err != nil {
				return err
			}
			s.add(kind, ids...)
		}
	}
	return nil
}

// addBeginnings puts the beginnings of recent ids before the number in the text. So the text 4711 finds the id o-4711.
func (s *nearSearch) addBeginnings(ctx context.Context) error {
	page, err := s.d.Entries(ctx, s.actor, Filter{Newest: true, Limit: sampledIDs})
	if err != nil {
		return err
	}
	if number, err := compensator.ParseEntryID(strings.TrimPrefix(s.text, "#")); err == nil && len(page.Entries) > 0 && number.Compare(page.Entries[0].ID) > 0 {
		s.add(KindEntry, page.Entries[0].ID.String()) // The text is a higher id than that of the newest entry, so offer the newest entry.
	}
	var beginnings []string
	for i := range page.Entries {
		id := page.Entries[i].BusinessID
		at := strings.IndexFunc(id, unicode.IsDigit)
		if at > 0 && !strings.HasPrefix(s.text, id[:at]) && !slices.Contains(beginnings, id[:at]) {
			beginnings = append(beginnings, id[:at])
		}
	}
	for _, beginning := range beginnings[:min(len(beginnings), maxBeginnings)] {
		ids, err := s.d.idsLike(ctx, s.actor, KindBusiness, beginning+s.text[max(0, strings.IndexFunc(s.text, unicode.IsDigit)):], true, maxNear)
		if err != nil {
			return err
		}
		s.add(KindBusiness, ids...)
	}
	return nil
}

func (s *nearSearch) addExchanged(ctx context.Context) error {
	variants := exchanged(s.text)
	for _, variant := range variants[max(0, len(variants)-maxVariants):] {
		ids, err := s.d.idsLike(ctx, s.actor, KindBusiness, variant, false, 1)
		if err != nil {
			return err
		}
		s.add(KindBusiness, ids...)
	}
	return nil
}

func (s *nearSearch) addShortened(ctx context.Context) error {
	letters := []rune(s.text)
	for cut := 1; cut <= 2 && len(letters)-cut >= minPrefix; cut++ {
		ids, err := s.d.idsLike(ctx, s.actor, KindBusiness, string(letters[:len(letters)-cut]), true, sampledIDs)
		if err != nil {
			return err
		}
		slices.SortStableFunc(ids, func(a, b string) int { return editDistance(s.text, a) - editDistance(s.text, b) })
		s.add(KindBusiness, slices.DeleteFunc(ids, func(id string) bool { return editDistance(s.text, id) > 2 })...)
	}
	return nil
}

func exchanged(text string) (variants []string) {
	letters := []rune(text)
	for i := 1; i < len(letters); i++ {
		if letters[i-1] != letters[i] {
			variant := slices.Clone(letters)
			variant[i-1], variant[i] = letters[i], letters[i-1]
			variants = append(variants, string(variant))
		}
	}
	return variants
}

func (d *Admin) idsLike(ctx context.Context, a Actor, kind IDKind, text string, isPrefix bool, limit int) (ids []string, err error) {
	filter := kind.Filter(text, isPrefix)
	filter.Limit = limit
	page, err := d.entries(ctx, a, filter, SeeEntries)
	for i := range page.Entries {
		id := page.Entries[i].BusinessID
		switch kind {
		case KindBusinessExt:
			id = page.Entries[i].BusinessExtID
		case KindBatch:
			id = page.Entries[i].BatchID
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}
