package ui

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/compensator-go/compensator"
)

func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := loadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func TestTimeThatAZoneSkipsOrShowsTwiceIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, text, want string }{
		{"Asia/Shanghai", "2026-11-27T08:00", "2026-11-27T00:00:00Z"},
		{"Asia/Shanghai", "2026-11-27", "2026-11-26T16:00:00Z"},
		{"Europe/Berlin", "2026-03-29T02:30", "does not exist"},
		{"Europe/Berlin", "2026-03-29T01:59", "2026-03-29T00:59:00Z"},
		{"Europe/Berlin", "2026-03-29T03:00", "2026-03-29T01:00:00Z"},
		{"Europe/Berlin", "2026-10-25T02:30", "comes twice"},
		{"Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T00:30:00Z"},
		{"Europe/Berlin", "2026-10-25T03:00:07", "2026-10-25T02:00:07Z"},
		{"America/New_York", "2026-11-01T01:15", "comes twice"},
		{"Australia/Lord_Howe", "2026-04-05T01:45", "comes twice"},
		{"Pacific/Kiritimati", "2026-11-27T00:00", "2026-11-26T10:00:00Z"},
		{"UTC", "2026-03-29T02:30", "2026-03-29T02:30:00Z"},
		{"UTC", "soon", "want a time"},
	} {
		at, err := parseTime("from", c.text, zoneOf(t, c.zone))
		var field *compensator.FieldError
		switch {
		case errors.As(err, &field):
			if !strings.Contains(field.Reason, c.want) {
				t.Errorf("%s in %s: %s, want %s", c.text, c.zone, field.Reason, c.want)
			}
			for _, w := range languages {
				if text := w.explainField(field); strings.Contains(text, "whose clocks") {
					t.Errorf("%s: %q is not translated", w.Lang, text)
				}
			}
		case at.Format(time.RFC3339) != c.want:
			t.Errorf("%s in %s: %s, want %s", c.text, c.zone, at.Format(time.RFC3339), c.want)
		}
	}
}

func TestFieldShowsTheTimeThatItMeans(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"UTC", "Asia/Shanghai", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"} {
		w := words{zone: zoneOf(t, name)}
		for at := time.Date(2026, 1, 1, 0, 15, 0, 0, time.UTC); at.Year() == 2026; at = at.Add(time.Hour / 2) {
			again, err := parseTime("from", w.fieldValue(at), w.zone)
			if err != nil || !again.Equal(at) {
				t.Fatalf("%s: %s became %q, which is %s, %v", name, at, w.fieldValue(at), again, err)
			}
		}
	}
}

func TestZoneIsAnIANAName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Local", "../../etc/passwd", "/etc/localtime", "Nowhere/None", strings.Repeat("x", 200), "\x00"} {
		if zone, err := loadZone(name); err == nil {
			t.Errorf("%q: %v", name, zone)
		}
	}
}
