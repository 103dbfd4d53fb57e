package bench

import (
	"flag"
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	quick = flag.Bool("quick", false, "short pairs against the floors only, without peers; 3 pairs unless -pairs is set")
	size  = flag.Float64("size", 1, "factor for the amount of work; 0.01 for a trial run")
	pairs = flag.Int("pairs", 5, "number of pairs of runs per contest")
	only  = flag.String("only", "", "run only contests whose names contain this text")
	out   = flag.String("out", "../build/bench.json", "path of the JSON report")
)

func TestMain(m *testing.M) {
	runVictim()
	runRelayVictim()
	runWaitWorker()
	os.Exit(testservers.Main(m))
}
