package tutorial

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/testservers"
	_ "modernc.org/sqlite"
)

// installs lists the modules of the page docs/how-to/install.md.
var installs = []string{"orms/gormtx", "cron", "otel", "relay/rabbitmq", "relay/watermill", "compensatortest/sqlitetest"}

// Resolve the imports only: the tests of the modules compile them.
func TestEachModuleIsFoundInACloneAsThePageShows(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/install.md")
	require.NoError(t, err)
	for _, module := range installs {
		assert.Contains(t, string(page), "`"+module+"`")
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			steps := stepsOf(t, "docs/how-to/install.md")
			require.Len(t, steps, 3)
			steps[0].files["shop/go.mod"] = "module shop\n"
			steps[0].files["shop/main.go"] = "package main\n\nimport (\n\t_ \"github.com/compensator-go/compensator\"\n)\n\nfunc main() {}\n"
			steps[1].files["main.go"] = "package main\n\nimport (\n\t_ \"github.com/compensator-go/compensator/" + module + "\"\n)\n\nfunc main() {}\n"
			steps[1].commands += "go list -deps . >/dev/null && echo resolved\n"
			resolved := "resolved\n"
			steps[1].prints = &resolved
			if module != installs[0] {
				steps = steps[:2] // The third step resolves the imports of the command line. The run of one module tests that step.
			}
			run(t, steps, nil, "module=orms/gormtx", "module="+module, "go install .", "GOWORK= go list -deps . >/dev/null")
		})
	}
}

var (
	neededBy = regexp.MustCompile("(?m)^\\| `(common_process_log\\w*)` \\|.*\\| (.+) \\|$")
	created  = regexp.MustCompile("CREATE TABLE IF NOT EXISTS [`\"]?(common_process_log\\w*)")
)

// TestPageAboutTablesListsEachTable compares the table of the page with the migrations.
func TestPageAboutTablesListsEachTable(t *testing.T) {
	files, err := filepath.Glob("../../migrations/mysql/*.sql")
	require.NoError(t, err)
	var made, listed []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, table := range created.FindAllStringSubmatch(string(text), -1) {
			made = append(made, table[1])
		}
	}
	for _, page := range []string{"../../docs/how-to/tables.md", "../../docs/zh/how-to/tables.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		listed = nil
		for _, row := range neededBy.FindAllStringSubmatch(string(text), -1) {
			listed = append(listed, row[1])
		}
		assert.ElementsMatch(t, made, listed, page)
	}
}

// TestSimplestUseNeedsOnlyTheTablesThatThePageNames drops every table except those that the page lists for every
// service. An entry must run nevertheless.
func TestSimplestUseNeedsOnlyTheTablesThatThePageNames(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/how-to/tables.md")
	require.NoError(t, err)
	rows := neededBy.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, rows)
	for driver, dsn := range map[string]string{
		"mysql":  testservers.Database(t),
		"sqlite": "file:" + filepath.Join(t.TempDir(), "log.db") + "?_txlock=immediate&_pragma=busy_timeout(10000)",
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db, err := compensator.Open(driver, dsn)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			require.NoError(t, compensator.Migrate(t.Context(), db))
			needed := 0
			for _, row := range rows {
				if row[2] == "every service" {
					needed++
					continue
				}
				_, err := db.Exec("DROP TABLE " + row[1])
				require.NoError(t, err)
			}
			assert.Equal(t, 5, needed, "the README and the page about installing name this number")
			runOne(t, db)
		})
	}
}

// runOne records an entry, and returns after the entry has succeeded.
func runOne(t *testing.T, db *sql.DB) {
	ctx, stop := context.WithCancel(t.Context())
	c, err := compensator.New(ctx, compensator.Config{DB: db})
	require.NoError(t, err)
	greet, err := compensator.HandleTx(ctx, c, "greet", func(context.Context, *compensator.ScopedTx, *compensator.Entry, string) error {
		stop() // Run stores the outcome before it returns
		return nil
	}, nil)
	require.NoError(t, err)
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx *compensator.ScopedTx) error {
		_, err := greet.Record(ctx, tx, "Ann", compensator.Options{IdempotencyKey: "greet-ann"})
		return err
	}))
	require.NoError(t, c.Run(ctx))
	entry, err := c.Get(t.Context(), compensator.IdempotencyKey("greet-ann"))
	require.NoError(t, err)
	assert.Equal(t, compensator.Succeeded, entry.State)
	require.NoError(t, c.Close())
}
