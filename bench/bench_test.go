package bench

import (
	"flag"
	"os"
	"testing"

	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	quick = flag.Bool("quick", false, "short pairs of ours against the floors, 3 unless -pairs says how many, and no peers")
	size  = flag.Float64("size", 1, "factor of every amount of work: 0.01 to see that it runs")
	pairs = flag.Int("pairs", 5, "pairs of runs of each work")
	only  = flag.String("only", "", "only where the work's name and the other's contain this")
	out   = flag.String("out", "../build/bench.json", "where the table goes as JSON")
)

func TestMain(m *testing.M) {
	runVictim()
	runRelayVictim()
	os.Exit(testservers.Main(m))
}
