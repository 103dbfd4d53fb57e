package sqlstore

import (
	"embed"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/migrations"
)

func TestCheckRequiresEveryColumnOfTheTable(t *testing.T) {
	t.Parallel()
	declared := func(files embed.FS, folder string) map[string]string {
		file, err := files.ReadFile(folder + "/000001_process_log.up.sql")
		require.NoError(t, err)
		types := make(map[string]string)
		for _, column := range regexp.MustCompile("(?m)^  `([a-z_]+)` +([A-Z]+)").FindAllStringSubmatch(string(file), -1) {
			types[column[1]] = column[2]
		}
		return types
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(declared(migrations.MySQL, "mysql"))), slices.Collect(maps.Keys(wantColumns)))
	required := make(map[string]string)
	for typ, columns := range sqliteColumns {
		for _, column := range columns {
			required[column] = typ
		}
	}
	require.Equal(t, declared(migrations.SQLite, "sqlite"), required)
}
