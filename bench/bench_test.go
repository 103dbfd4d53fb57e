package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	quick = flag.Bool("quick", false, "short pairs against the floors only, without peers; 3 pairs unless -pairs is set")
	size  = flag.Float64("size", 1, "factor for the amount of work; 0.01 for a trial run")
	pairs = atLeastOne("pairs", 5, "number of pairs of runs per contest")
	only  = flag.String("only", "", "run only contests whose names contain this text")
	out   = flag.String("out", "../build/bench.json", "path of the JSON report")
)

// atLeastOne defines a flag for a number of at least 1. With 0 pairs of runs, the table would be empty.
func atLeastOne(name string, value int, usage string) *int {
	n := &value
	flag.Func(name, fmt.Sprintf("%s, at least 1 (default %d)", usage, value), func(text string) error {
		given, err := strconv.Atoi(text)
		if err == nil && given < 1 {
			err = errors.New("want 1 or more")
		}
		if err == nil {
			*n = given
		}
		return err
	})
	return n
}

func TestMain(m *testing.M) {
	runVictim()
	runRelayVictim()
	runWaitWorker()
	os.Exit(testservers.Main(m))
}
