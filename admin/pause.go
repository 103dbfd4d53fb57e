package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/processlog"
)

// Paused is a paused type. No process claims its entries.
type Paused struct {
	Type    string    `json:"type"`           // business type
	Version uint64    `json:"version,string"` // version of the pause. Resume needs it
	Actor   string    `json:"actor"`          // the person who paused the type
	Reason  string    `json:"reason"`         // reason that Actor gave
	At      time.Time `json:"at"`             // time of the pause, by the database's clock
	Until   time.Time `json:"until,omitzero"` // when the pause ends by itself, by the database's clock; zero: only Resume ends it
}

// Paused lists the paused types that the actor may see. It needs SeeOverview.
func (d *Admin) Paused(ctx context.Context, a Actor) ([]Paused, error) {
	settings, err := runQuery(ctx, d, d.log.Operations().Settings)
	if err != nil {
		return nil, err
	}
	return visiblePaused(ctx, settings, d.rightsOf(a, SeeOverview)), nil
}

// PausedOf lists the pauses of the given types. PausedOf needs SeeOverview. A type that is not paused is missing.
func (d *Admin) PausedOf(ctx context.Context, a Actor, types ...string) ([]Paused, error) {
	if len(types) == 0 {
		return nil, nil
	}
	settings, _, err := d.settings.get(ctx, &d.actionCount, func(ctx context.Context) ([]processlog.Setting, error) {
		return runQuery(ctx, d, d.log.Operations().Settings)
	})
	paused := visiblePaused(ctx, settings, d.rightsOf(a, SeeOverview))
	return slices.DeleteFunc(paused, func(p Paused) bool { return !slices.Contains(types, p.Type) }), err
}

func visiblePaused(ctx context.Context, settings []processlog.Setting, mayRead *typeRights) (paused []Paused) {
	for _, s := range settings {
		name, isPause := processlog.PausedType(s)
		if isPause && mayRead.holds(ctx, name) {
			paused = append(paused, Paused{Type: name, Version: s.Version, Actor: s.Actor, Reason: s.Reason, At: s.At, Until: s.PauseEnd()})
		}
	}
	return paused
}

// Pause stops the claims of a type in all processes whose Config.Operations is set. Each process stops within 1.2 times
// its ReconcileInterval. Running attempts continue, and new entries are still recorded. Pause needs the right Pause.
//
// Pause returns ErrChanged if the type is paused already: see PauseOptions.Instead. It returns an *UnknownTypeError if
// neither the log nor this process knows the type.
//
// Pause returns ErrNotAllowed if the actor lacks the right, ErrReadOnly if Options.ReadOnly is set, and a *FieldError
// for an invalid argument.
func (d *Admin) Pause(ctx context.Context, a Actor, businessType string, why Why) error {
	return d.PauseWith(ctx, a, businessType, PauseOptions{}, why)
}

// PauseOptions are the options of a pause. The zero value pauses a known type until Resume.
type PauseOptions struct {
	For   time.Duration // length of the pause, from a second to 366 days. With 0, only Resume ends the pause
	Ahead bool          // accept any name, for a type that has no entries yet. PauseWith then returns no *UnknownTypeError

	// Instead replaces an existing pause. Set it to the Paused.Version that the actor saw. The type stays paused during
	// the change. If the existing pause has changed or ended, PauseWith returns ErrChanged. If Instead is 0
	// and the type is paused, PauseWith also returns ErrChanged.
	Instead uint64
}

const maxPause = 366 * 24 * time.Hour

// PauseWith does the same as Pause, with options. If the field opts.For is set, the pause lasts this long from the call
// of PauseWith, by the database's clock. Until the pause ends, no process starts an entry of the type. Resume ends the
// pause at once. If the field opts.Instead is set, the new pause replaces the existing pause of the type.
func (d *Admin) PauseWith(ctx context.Context, a Actor, businessType string, opts PauseOptions, why Why) error {
	reason, err := d.checkTypeAction(ctx, a, businessType, why)
	if err == nil && opts.For != 0 && (opts.For < time.Second || opts.For > maxPause) {
		err = &compensator.FieldError{Field: "length", Reason: "want 1 second to 366 days"}
	}
	if err == nil && !opts.Ahead {
		err = d.checkPaused(withAction(ctx), a, businessType)
	}
	if err != nil {
		return err
	}
	settings, err := runQuery(withAction(ctx), d, d.log.Operations().Settings)
	if err != nil {
		return err
	}
	pause, subject := processlog.Pause(businessType), ""
	if opts.For > 0 {
		pause, subject = processlog.PauseFor(businessType, opts.For), "for "+opts.For.Round(time.Second).String()
	}
	pause.Actor, pause.Reason = a.ID, reason
	current := uint64(0) // version of the pause in force
	for _, s := range settings {
		if s.Name != pause.Name {
			continue
		}
		pause.Version = s.Version
		if _, isPause := processlog.PausedType(s); isPause {
			current = s.Version
		}
	}
	if current != opts.Instead {
		return fmt.Errorf("pause %q: %w", businessType, ErrChanged)
	}
	action := "pause"
	if current > 0 {
		action, subject = "change pause", cmp.Or(subject, "until resumed")
	}
	defer d.actionCount.Add(1)
	return d.log.Operations().PutSetting(ctx, pause, processlog.Operation{Actor: a.ID, Action: action, BusinessType: businessType, Subject: subject, Reason: reason})
}

// Resume ends a pause in the version that the actor saw. It needs the right Pause. It returns ErrChanged if the pause
// has changed or ended. Its other errors are ErrNotAllowed, ErrReadOnly and *FieldError, as for Pause.
func (d *Admin) Resume(ctx context.Context, a Actor, seen Paused, why Why) error {
	reason, err := d.checkTypeAction(ctx, a, seen.Type, why)
	if err != nil {
		return err
	}
	resume := processlog.Pause(seen.Type)
	resume.Value, resume.Version, resume.Actor, resume.Reason = "", seen.Version, a.ID, reason
	if resume.Version == 0 {
		return fmt.Errorf("resume %q: %w", seen.Type, ErrChanged)
	}
	defer d.actionCount.Add(1)
	return d.log.Operations().PutSetting(ctx, resume, processlog.Operation{Actor: a.ID, Action: "resume", BusinessType: seen.Type, Reason: reason})
}

func (d *Admin) checkTypeAction(ctx context.Context, a Actor, businessType string, why Why) (string, error) {
	if d.readOnly {
		return "", ErrReadOnly
	}
	reason, err := why.text()
	if err != nil {
		return "", err
	}
	if processlog.IsBlank(businessType) || !utf8.ValidString(businessType) || utf8.RuneCountInString(businessType) > processlog.MaxName {
		return "", &compensator.FieldError{Field: "business type", Reason: "want 1 to 64 characters"}
	}
	if strings.TrimSpace(businessType) != businessType { // No type has such a name. If the name was pasted with spaces, a pause of it would stop nothing.
		return "", &compensator.FieldError{Field: "business type", Reason: "starts or ends with a space"}
	}
	if !d.mayDo(ctx, a, Pause, Subject{Type: businessType}) {
		return "", d.recordTypeRefusal(ctx, a, businessType, processlog.Operation{Action: string(Pause), Reason: reason})
	}
	return reason, nil
}
