package bench

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/internal/faultproxy"
)

func TestFloorsRunTheScriptsOfTheLibrary(t *testing.T) {
	for _, name := range []string{"claim", "settle"} {
		if _, err := script(name); err != nil {
			t.Error(err)
		}
	}
}

// The library must send every statement that a floor sends. A floor is the hand-written program that the benchmark
// compares with the library. docs/internals/performance.md describes two differences that this test allows. First, an
// INSERT of the library also checks its transaction and its session. Second, a statement of the library names the
// database of the log.
func TestFloorsSendTheStatementsOfTheLibrary(t *testing.T) {
	a := newArena(t)
	config, err := mysql.ParseDSN(a.dsn)
	a.must(err)
	proxy, err := faultproxy.NewMySQL(config.Addr)
	a.must(err)
	defer proxy.Close()
	config.Addr, config.InterpolateParams = proxy.Addr(), false // With InterpolateParams the driver would put the values into the text.
	var mu sync.Mutex                                           // guards sent
	sent := make(map[string]bool)
	proxy.Arm(faultproxy.Rule{Fault: faultproxy.Count, Match: func(r faultproxy.Request) bool {
		if r.Runs() {
			mu.Lock()
			sent[withoutValues(r.Text)] = true
			mu.Unlock()
		}
		return false
	}})
	db, err := openPool(config.FormatDSN(), 8, true)
	a.must(err)
	l, err := openLibrary(db, a.client(), compensator.HandlerConfig[raw]{Concurrency: 10}, nil, func(context.Context, *compensator.Entry) error { return nil })
	a.must(err)
	l.a = a
	l.run()
	recorded := int64(0)
	for _, delay := range []time.Duration{0, time.Second} {
		for _, n := range []int{1, 2} {
			_, err := l.record(t.Context(), n, compensator.Options{Delay: delay})
			a.must(err)
			recorded += int64(n)
		}
	}
	// The library inserts due entries with a lease as soon as the process has run its first entries.
	leased := withoutValues(floorInsert + floorLeased + "," + floorLeased + floorIDs)
	a.waitUntil(func() bool {
		_, err := l.record(t.Context(), 2, compensator.Options{})
		a.must(err)
		recorded += 2
		mu.Lock()
		defer mu.Unlock()
		return sent[leased]
	})
	a.waitUntil(func() bool { return l.settled.Load() == recorded })
	l.close()
	token := make([]byte, 16)
	for name, text := range map[string]string{
		"insert of one":         floorInsert + floorTuple,
		"insert of two":         floorInsert + floorTuple + "," + floorTuple + floorIDs,
		"insert of leased ones": leased,
		"verify":                fmt.Sprintf(floorVerify, "1"),
		"lock":                  fmt.Sprintf(floorLock, "1"),
		"take":                  fmt.Sprintf(floorTake, token, "1"),
		"settle":                fmt.Sprintf(floorSucceed, token, "1", "1"),
	} {
		mu.Lock()
		found := sent[withoutValues(text)]
		mu.Unlock()
		if !found {
			t.Errorf("the library does not send the floor's %s:\n%s", name, withoutValues(text))
		}
	}
	if t.Failed() {
		mu.Lock()
		defer mu.Unlock()
		for text := range sent {
			if strings.Contains(text, "common_process_log`") {
				t.Log(text)
			}
		}
	}
}

var values = []struct {
	is   *regexp.Regexp
	text string
}{
	{regexp.MustCompile("`compensator_[a-z0-9]+`\\."), ""},                      // the library names the database of its tables, and the floors do not
	{regexp.MustCompile(`IF\(.*?,CONCAT\(\?\),18446744073709551615\+1\)`), "?"}, // the check of the transaction in an INSERT
	{regexp.MustCompile(`(?i)x'[0-9a-f]{32}'`), "TOKEN"},
	{regexp.MustCompile(`\b(id|CRC32\(idempotent_id\)) IN \([0-9,]+\)`), "$1 IN (LIST)"},
	{regexp.MustCompile(` DIV 1000\) ?\+ ?[1-9][0-9]{3,}`), " DIV 1000)+LEASE"},
}

func withoutValues(text string) string {
	for _, v := range values {
		text = v.is.ReplaceAllString(text, v.text)
	}
	return text
}
