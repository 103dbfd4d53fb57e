package faultproxy

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/compensator-go/compensator/internal/testservers"
)

func TestMain(m *testing.M) {
	code := testservers.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
