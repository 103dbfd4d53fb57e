package rollback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// A database that has gone back to an older state may write a version number for the second time, with another token.
// The detector must keep the lost version, because only the lost version shows the loss.
func TestWhatRefutesWhatIsSeenLaterStaysRemembered(t *testing.T) {
	var m versionMemory
	lost := processlog.Row{ID: processlog.RowID(7), Version: 3, Token: processlog.Token{1}}
	m.sawUnconfirmed([]processlog.Row{lost}, time.Now())
	m.sawRows([]processlog.Row{{ID: lost.ID, Version: 3, Token: processlog.Token{2}}}, time.Now())
	require.Equal(t, versionOf(&lost), m.all()[0].Version)
	next := processlog.Row{ID: lost.ID, Version: 4, Token: processlog.Token{2}}
	m.sawRows([]processlog.Row{next}, time.Now())
	require.Equal(t, versionOf(&next), m.all()[0].Version, "a later version is what the same history may have")
}
