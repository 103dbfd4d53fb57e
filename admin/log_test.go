package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/admin"
)

// The docs give the names of these fields.
func TestPageIsWrittenAsJSON(t *testing.T) {
	written, err := json.Marshal(admin.Page{Next: "c"})
	require.NoError(t, err)
	require.JSONEq(t, `{"entries":null,"next":"c","read":0}`, string(written))
}
