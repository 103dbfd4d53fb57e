package ui

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
)

// outcome is stored in a cookie, so a link cannot forge one, and any process can show it.
type outcome struct {
	Name   string         `json:"n"` // name of the outcome in the address of the page
	Whose  string         `json:"w"` // hash of the person who acted: see hashActor
	Do     string         `json:"do"`
	Type   string         `json:"type,omitempty"`
	Until  time.Time      `json:"until,omitzero"` // end of the pause that the person has begun; zero: a person ends it
	Back   string         `json:"back"`
	Counts map[string]int `json:"counts"` // number of entries for each answer
	List   []answer       `json:"list,omitempty"`
}

type answer struct {
	ID     compensator.EntryID
	Answer string
}

// MarshalText returns the id and the answer, joined by a colon.
func (a answer) MarshalText() ([]byte, error) { return []byte(a.ID.String() + ":" + a.Answer), nil }

// UnmarshalText reads the text of MarshalText.
func (a *answer) UnmarshalText(text []byte) (err error) {
	id, word, _ := strings.Cut(string(text), ":")
	a.Answer = word
	a.ID, err = compensator.ParseEntryID(id)
	return err
}

// Limits of an outcome, so that it fits a cookie of 4 KB together with an address to return to. The list begins with
// the entries that were not changed.
const (
	maxAnswers    = pageSize
	maxReturnPath = 900
)

func (o *outcome) addResults(ids []compensator.EntryID, errs []error) {
	o.Counts = make(map[string]int)
	for i, err := range errs {
		a := answer{ids[i], answerOf(err)}
		o.Counts[a.Answer]++
		o.List = append(o.List, a)
	}
	slices.SortStableFunc(o.List, func(a, b answer) int {
		return strings.Compare(strings.Replace(a.Answer, "done", "~", 1), strings.Replace(b.Answer, "done", "~", 1))
	})
	o.List = o.List[:min(len(o.List), maxAnswers)]
}

func answerOf(err error) string {
	var state *compensator.StateError
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, admin.ErrChanged):
		return "changed"
	case errors.Is(err, admin.ErrNotAllowed):
		return "not_allowed"
	case errors.Is(err, compensator.ErrNotFound):
		return "not_found"
	case errors.Is(err, compensator.ErrBusy):
		return "busy"
	case errors.As(err, &state):
		return "state"
	}
	return "failed"
}

// Answers returns all possible answers, in the order in which the page shows them.
func (outcome) Answers() []string {
	return []string{"done", "changed", "busy", "state", "not_allowed", "not_found", "failed"}
}

// Shown returns how many entries the page lists.
func (o outcome) Shown() int { return len(o.List) }

// All returns the number of entries that a person chose for the action.
func (o outcome) All() (n int) {
	for _, count := range o.Counts {
		n += count
	}
	return n
}

const (
	outcomeCookie  = "compensator_done"
	outcomeSeconds = 600
)

// hashActor returns a short hash of the id of an actor. A cookie with this hash is valid only for this actor.
func hashActor(a admin.Actor) string {
	sum := sha256.Sum256([]byte(a.ID))
	return hex.EncodeToString(sum[:8])
}

func (rq *request) setOutcome(o outcome) {
	o.Name, o.Whose = rand.Text()[:10], hashActor(rq.Actor)
	if len(o.Back) > maxReturnPath {
		o.Back = rq.s.base
	}
	text, err := quoteJSON(o) // Use quoteJSON, because it encodes an & as one byte.
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.setCookie(outcomeCookie, base64.RawURLEncoding.EncodeToString([]byte(text)), outcomeSeconds)
	to, _ := rq.Link("done", "n", o.Name)
	rq.redirect(to)
}

func (s *server) showDone(rq *request) {
	var o outcome
	cookie, err := rq.r.Cookie(outcomeCookie)
	if err == nil {
		var text []byte
		if text, err = base64.RawURLEncoding.DecodeString(cookie.Value); err == nil {
			err = json.Unmarshal(text, &o)
		}
	}
	if err != nil || o.Name != rq.r.URL.Query().Get("n") || o.Whose != hashActor(rq.Actor) {
		rq.showError(http.StatusNotFound, "error.no_outcome")
		return
	}
	o.Back = rq.safeReturnPath(o.Back)
	rq.showPage(http.StatusOK, "done", o)
}
