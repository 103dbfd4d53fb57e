package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/httpcall"
	"github.com/compensator-go/compensator/internal/testservers"
)

const asItself = "COMPENSATOR_REFUND"

func TestMain(m *testing.M) {
	if os.Getenv(asItself) != "" {
		main()
		return
	}
	os.Exit(testservers.Main(m))
}

// partner refuses the order "refused".
type partner struct {
	*httptest.Server
	let chan struct{} // Each call waits until the test closes this channel. Then the partner answers.

	mu            sync.Mutex // guards the fields below
	running, most int        // number of calls at this moment, and the highest such number so far
	keys          map[string][]string
}

func newPartner(t *testing.T) *partner {
	p := &partner{let: make(chan struct{}), keys: make(map[string][]string)}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Read the whole body first. Only after that does net/http notice a broken connection, and end the context of the
	// request.
	body, err := io.ReadAll(r.Body)
	var refund Refund
	if err != nil || json.Unmarshal(body, &refund) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.count(+1, refund.Order, r.Header.Get(httpcall.KeyHeader))
	select {
	case <-p.let:
	case <-r.Context().Done(): // The connection is broken, because the test has killed the caller.
	}
	p.count(-1, refund.Order, "")
	if refund.Order == "refused" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	_ = json.NewEncoder(w).Encode(Answer{"R-" + refund.Order})
}

func (p *partner) count(n int, order, key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running += n
	p.most = max(p.most, p.running)
	if key != "" {
		p.keys[order] = append(p.keys[order], key)
	}
}

func (p *partner) seen(order string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[order]
}

type shop struct {
	*testing.T
	partner     *partner
	driver, dsn string
	environment []string
}

func onEach(t *testing.T, test func(s *shop)) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		rdb, dsn := testservers.SharedRedis(t), testservers.Database(t)
		test(newShop(t, "mysql", dsn, "MYSQL_DSN="+dsn, "REDIS_ADDR="+rdb.Addr(), "REDIS_PREFIX="+rdb.Prefix(t)))
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "refund.db")
		test(newShop(t, "sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)", "MYSQL_DSN=", "REDIS_ADDR=", "SQLITE_FILE="+file))
	})
}

func newShop(t *testing.T, driver, dsn string, environment ...string) *shop {
	p := newPartner(t)
	return &shop{t, p, driver, dsn, append(environment, asItself+"=1", "ADDR=127.0.0.1:0", "PARTNER_URL="+p.URL)}
}

func (s *shop) cancel(key compensator.IdempotencyKey) {
	db, err := compensator.Open(s.driver, s.dsn)
	require.NoError(s, err)
	defer db.Close()
	c, err := compensator.New(s.Context(), compensator.Config{DB: db})
	require.NoError(s, err)
	defer c.Close()
	_, err = c.Cancel(s.Context(), key)
	require.NoError(s, err)
}

func (s *shop) start() (refunds string, kill func()) {
	self, err := os.Executable()
	require.NoError(s, err)
	program := exec.Command(self)
	program.Env = append(os.Environ(), s.environment...)
	output, err := program.StderrPipe()
	require.NoError(s, err)
	require.NoError(s, program.Start())
	kill = sync.OnceFunc(func() { _, _ = program.Process.Kill(), program.Wait() })
	s.Cleanup(kill)
	said, open := bufio.NewScanner(output), regexp.MustCompile(`addr=(\S+)`)
	for said.Scan() {
		if found := open.FindStringSubmatch(said.Text()); found != nil {
			go func() { _, _ = io.Copy(io.Discard, output) }() // so that the program does not wait for its log to be read
			return "http://" + found[1] + "/refunds/", kill
		}
	}
	require.Fail(s, "the program ended before it listened")
	return "", nil
}

func (s *shop) ask(method, url string) (status int, body, location string) {
	r, err := http.NewRequestWithContext(s.Context(), method, url, nil)
	assert.NoError(s, err)
	answer, err := http.DefaultClient.Do(r)
	if !assert.NoError(s, err) {
		return 0, "", ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	assert.NoError(s, err)
	return answer.StatusCode, string(text), answer.Header.Get("Location")
}

func (s *shop) link(url string) (result string) {
	for deadline := time.Now().Add(2 * time.Minute); ; {
		status, body, _ := s.ask("GET", url)
		if status == http.StatusOK {
			return body
		}
		require.Equal(s, http.StatusAccepted, status, body)
		require.Less(s, time.Now(), deadline, "there is no result")
	}
}

func TestRequestGetsTheAnswerOrALink(t *testing.T) {
	onEach(t, func(s *shop) {
		refunds, _ := s.start()
		status, _, location := s.ask("POST", refunds+"slow%20one")
		require.Equal(s, http.StatusAccepted, status)
		require.Equal(s, "/refunds/slow%20one", location)
		close(s.partner.let)
		require.JSONEq(s, `{"Reference":"R-slow one"}`, s.link(refunds+"slow%20one"))

		status, body := 0, ""
		for n := 0; status != http.StatusOK; n++ { // on a busy machine, an answer may take longer than two seconds
			require.Less(s, n, 30)
			status, body, _ = s.ask("POST", refunds+fmt.Sprint("quick-", n))
		}
		require.Contains(s, body, `"R-quick-`)

		status, _, _ = s.ask("GET", refunds+"unknown")
		require.Equal(s, http.StatusNotFound, status)
		status, _, _ = s.ask("POST", refunds+strings.Repeat("x", 200))
		require.Equal(s, http.StatusBadRequest, status)
		status, _, _ = s.ask("POST", refunds+"refused")
		require.Equal(s, http.StatusAccepted, status, "a person may still requeue it")
		s.cancel("refund-refused")
		status, _, _ = s.ask("GET", refunds+"refused")
		require.Equal(s, http.StatusConflict, status)
	})
}

func TestPartnerSeesNoMoreCallsThanTheLimit(t *testing.T) {
	onEach(t, func(s *shop) {
		one, _ := s.start()
		other, _ := s.start()
		var requests sync.WaitGroup
		for n := range 6 {
			requests.Go(func() {
				status, _, _ := s.ask("POST", []string{one, other}[n%2]+fmt.Sprint(n))
				assert.Equal(s, http.StatusAccepted, status)
			})
		}
		// Each request waits two seconds for its result. In this time all six entries are due, and only the limit keeps
		// four of them from calling the partner.
		requests.Wait()
		close(s.partner.let)
		for n := range 6 {
			require.JSONEq(s, fmt.Sprintf(`{"Reference":"R-%d"}`, n), s.link(one+fmt.Sprint(n)))
		}
		s.partner.mu.Lock()
		defer s.partner.mu.Unlock()
		require.Equal(s, 2, s.partner.most)
	})
}

func TestLinkAnswersAfterAKillInTheMiddleOfTheCall(t *testing.T) {
	onEach(t, func(s *shop) {
		refunds, kill := s.start()
		status, _, _ := s.ask("POST", refunds+"42")
		require.Equal(s, http.StatusAccepted, status)
		require.Eventually(s, func() bool { return len(s.partner.seen("42")) > 0 }, time.Minute, time.Millisecond)
		kill()
		close(s.partner.let)
		refunds, _ = s.start()
		require.JSONEq(s, `{"Reference":"R-42"}`, s.link(refunds+"42"))
		keys := s.partner.seen("42")
		require.GreaterOrEqual(s, len(keys), 2, "the call of the killed process, and the next one")
		for _, key := range keys {
			require.Equal(s, keys[0], key, "the partner recognises the repeated call")
		}
	})
}
