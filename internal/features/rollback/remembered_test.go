package rollback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

// A database that went back may have written the same version number again.
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
