package bench

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	quick = flag.Bool("quick", false, "short pairs against the floors only, without peers; 3 pairs unless -pairs is set")
	size  = sizeFlag("size", "factor for the amount of work; 0.01 for a trial run")
	pairs = atLeastOne("pairs", 5, "number of pairs of runs per contest")
	only  = flag.String("only", "", "run only contests whose names contain this text")
	out   = flag.String("out", "../build/bench.json", "path of the JSON report")
)

// With 0 pairs of runs, the table would be empty.
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

// With 0 or a negative number, most contests would have one entry.
func sizeFlag(name, usage string) *float64 {
	n := new(float64)
	*n = 1
	flag.Func(name, fmt.Sprintf("%s, above 0 and at most %d (default 1)", usage, mostSize), func(text string) error {
		given, err := strconv.ParseFloat(text, 64)
		if err == nil && !(given > 0 && given <= mostSize) { // A comparison with NaN is false.
			err = fmt.Errorf("want a number above 0 and at most %d", mostSize)
		}
		if err == nil {
			*n, waitLimit = given, time.Duration(max(1, given)*float64(2*time.Minute))
		}
		return err
	})
	return n
}

// mostSize is the largest value of -size. With -size 1, TestBench takes about an hour, so with mostSize it takes most
// of a day.
const mostSize = 20

// partsIn fails the test if the flag names a part that does not exist, because the table would then be empty.
func partsIn(t testing.TB, flagName, text string, all ...string) func(part string) bool {
	t.Helper()
	if text == "" {
		return func(string) bool { return true }
	}
	wanted := strings.Split(text, ",")
	for _, part := range wanted {
		if !slices.Contains(all, part) {
			t.Fatalf("-%s %q: there is no part %q; want some of %s", flagName, text, part, strings.Join(all, ","))
		}
	}
	return func(part string) bool { return slices.Contains(wanted, part) }
}

// showTimeout is how long before the end of -timeout a benchmark prints its table.
const showTimeout = 20 * time.Second

// shown calls the parameter show once, even if the benchmark fails. The call is at the end of the test, or shortly
// before -timeout ends the program.
//
// The parameter show prints the results that the benchmark has collected. The benchmark changes these results only in
// functions that it passes to the result found. The result found calls each function under a mutex, so the parameter
// show never reads a half-finished change.
func shown(t *testing.T, show func()) (found func(change func())) {
	t.Helper()
	var mu sync.Mutex // guards the benchmark's results, which the function show reads
	once := sync.OnceFunc(func() {
		mu.Lock()
		defer mu.Unlock()
		show()
	})
	t.Cleanup(once)
	if end, limited := t.Deadline(); limited {
		timer := time.AfterFunc(time.Until(end)-showTimeout, func() {
			once()
			fmt.Printf("\nThe benchmark does not end before -timeout, so the table is not complete. Give a longer -timeout, or less work: -size, -pairs, -only.\n")
		})
		t.Cleanup(func() { timer.Stop() })
	}
	return func(change func()) {
		mu.Lock()
		defer mu.Unlock()
		change()
	}
}

func TestMain(m *testing.M) {
	runVictim()
	runRelayVictim()
	runWaitWorker()
	runSideWorker()
	os.Exit(testservers.Main(m))
}

func TestSizeThatIsNoAmountOfWorkIsRefused(t *testing.T) {
	before, limit := *size, waitLimit
	defer func() { *size, waitLimit = before, limit }()
	for _, text := range []string{"0", "-1", "NaN", "Inf", "-Inf", "1e300", "21", "", "abc"} {
		if err := flag.Set("size", text); err == nil || *size != before {
			t.Errorf("-size=%s is accepted", text)
		}
	}
	if err := flag.Set("size", "3"); err != nil || waitLimit != 6*time.Minute {
		t.Errorf("-size=3: %v, waits for %v", err, waitLimit)
	}
}

func TestPartThatDoesNotExistIsRefused(t *testing.T) {
	for text, fails := range map[string]bool{"": false, "drain": false, "drain,log": false, "drains": true, "drain,": true, "drain, log": true} {
		failed := false
		func() {
			defer func() { failed = recover() != nil }()
			partsIn(fatalProbe{t}, "part", text, "drain", "log")
		}()
		if failed != fails {
			t.Errorf("-part %q: refused %v, want %v", text, failed, fails)
		}
	}
}

type fatalProbe struct{ testing.TB }

func (f fatalProbe) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
