package uitest

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/observe"
)

func (w *world) breaks(businessType, text string) {
	w.t.Helper()
	typ, err := compensator.Handle(w.t.Context(), w.c, businessType, func(context.Context, *compensator.Entry, string) error {
		return compensator.Unavailable(errors.New(text))
	}, &compensator.HandlerConfig[string]{Retry: compensator.Fixed(time.Hour), Breaker: compensator.Breaker{Of: 1, Pause: time.Hour}})
	require.NoError(w.t, err)
	require.NoError(w.t, w.c.InTx(w.t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := typ.Record(ctx, tx, "", compensator.Options{IdempotencyKey: compensator.IdempotencyKey(businessType)})
		return err
	}))
}

func (w *world) broken() (open observe.OpenBreaker) {
	w.t.Helper()
	w.until(func() bool {
		all := w.c.Health(w.t.Context()).OpenBreakers
		if len(all) > 0 {
			open = all[0]
		}
		return len(all) > 0
	})
	return open
}

// Failure: F130
func TestOpenBreakerIsToldBesideItsType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "/ops/")
	w.breaks("charge", `POST https://psp.example/charge: no answer for order "o-7" of lin@example.com`)
	w.problem()
	open := w.broken()
	w.allow(func(_ context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool {
		switch a.ID {
		case "blind":
			return right != admin.SeeErrors
		case "half":
			return on.Type != "charge"
		}
		return true
	})
	since, next := open.Since.UTC().Format("2006-01-02 15:04:05 UTC"), open.ProbeAt.UTC().Format("2006-01-02 15:04:05 UTC")
	const full, masked = `POST https://psp.example/charge: no answer for order "o-7" of …@example.com`, `POST https://psp.example/charge: no answer for order “…” of …@example.com`
	for lang, told := range map[string]string{
		"en":    "breaker open: not claimed in this process since " + since + " · next try from " + next + " ",
		"zh-CN": "已熔断：本进程暂不领取 自 " + since + " · 下次试探不早于 " + next + " ",
	} {
		page := func(who string) string { return plain(w.client(who).get("", "Accept-Language", lang).text) }
		has(t, page("alice"), told+full, lang)
		has(t, page("blind"), told+masked, lang)
		lacks(t, page("half"), "charge", lang)
	}
	charge := w.entriesOf("charge", compensator.Pending)[0]
	const waits = "The breaker of charge is open: this process does not start its entries · next try from "
	for path, waits := range map[string]string{"confirm?do=reschedule&seen=" + seen(charge): waits + next,
		"entries/" + charge.ID.String(): "The breaker of the type is open in this process since " + since + " . This process tries one entry from " + next + " on."} {
		for who, text := range map[string]string{"alice": full, "blind": masked} {
			page := plain(w.client(who).get(path).text)
			has(t, page, waits, who)
			has(t, page, text, who)
		}
	}
	lacks(t, plain(w.client("alice").get("confirm?do=cancel&seen="+seen(charge)).text), waits, "nothing would run")
	lacks(t, plain(w.client("alice").get("entries/"+w.entriesOf("refund", compensator.Dead)[0].ID.String()).text), waits)
	row := regexp.MustCompile(`(?s)<tr[^>]*>\s*<th[^>]*><a[^>]*><bdi>charge</bdi>.*?</tr>`).FindString(w.client("alice").get("").text)
	require.NotEmpty(t, row)
	lacks(t, row, "on time")
}
