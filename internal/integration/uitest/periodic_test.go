package uitest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/compensatortest/sqlitetest"
)

func TestPeriodicTypesAreListedOnAPage(t *testing.T) {
	t.Parallel()
	c, db := sqlitetest.New(t, configure)
	w := worldOf(t, c, "/ops/")
	typ, err := compensator.Declare[time.Time](t.Context(), c, "settle_day", nil)
	require.NoError(t, err)
	const length = 10_000 * time.Hour
	require.NoError(t, compensator.Periodic(t.Context(), typ, compensator.Every(length), nil))
	latest := time.Now().UTC().Truncate(length)
	last, later := latest.Add(-2*length), latest.Add(length).Format(time.RFC3339)
	require.NoError(t, c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := typ.Record(ctx, tx, last, compensator.Options{IdempotencyKey: compensator.SlotKey("settle_day", last)})
		return err
	}))
	for _, statement := range []string{
		fmt.Sprintf("UPDATE common_process_log_slots SET slot=%d WHERE business_type='settle_day'", last.UnixMilli()),
		fmt.Sprintf("INSERT INTO common_process_log_slots (business_type, slot) VALUES ('monthly_report_with_a_long_name_for_all_customers', %d), ('once', %d)", last.UnixMilli(), last.UnixMilli()),
		"INSERT INTO common_process_log_instance (id, name, library, build, started_at, seen_at, ended_at, running, queue, types) SELECT" +
			" X'0102030405060708', 'api-9', '', 'v7', seen_at, seen_at, 0, 1, '', '[{\"name\":\"monthly_report_with_a_long_name_for_all_customers\",\"schedule\":{\"next\":[\"" + later + "\"]}}]' FROM common_process_log_instance WHERE name='api-1'",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	text := w.client("alice").get("periodic").text
	_, table, isFound := strings.Cut(text, "<tbody")
	require.True(t, isFound)
	from := -1
	for _, want := range []string{"<bdi>monthly_report", latest.Add(length).Format("2006-01-02"), "<bdi>api-9</bdi>", "<bdi>once</bdi>", "No process knows the schedule.",
		"<bdi>settle_day</bdi>", last.Format("2006-01-02"), "#", "pending", "2 not recorded, since", last.Add(length).Format("2006-01-02")} {
		at := strings.Index(table[max(from, 0):], want)
		assert.GreaterOrEqual(t, at, 0, "%s comes in its place", want)
		from = max(from, 0) + max(at, 0)
	}
	has(t, text, `<a href="/ops/periodic" aria-current="page">Periodic</a>`)
	w.allow(func(_ context.Context, a admin.Actor, _ admin.Right, on admin.Subject) bool {
		return on.Type == "once" || on.Type == "" && a.ID == "bob"
	})
	lacks(t, w.client("bob").get("periodic").text, "<bdi>settle_day</bdi>")
	lacks(t, w.client("carol").get("periodic").text, "api-9")
	w.allow(func(context.Context, admin.Actor, admin.Right, admin.Subject) bool { return true })

	b := openTab(t, w, "alice")
	for _, lang := range []string{"en", "zh-CN"} {
		b.look(lang, "light", 1280)
		b.open("periodic")
		b.arm()
		b.showWell("periodic", lang)
		b.quiet("periodic-" + lang)
	}
}
