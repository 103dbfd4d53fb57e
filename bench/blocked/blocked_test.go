package blocked

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/bench/internal/child"
	"github.com/compensator-go/compensator/internal/testservers"
)

var (
	seconds = flag.Int("seconds", 90, "seconds for which the server blocks")
	only    = flag.String("only", "", "run only blocks and pools whose names contain this text")
)

// Each process connects as a separate database user, so that the server can count its sessions.
const processes = 4

// The entries come due one by one, most of them while the server blocks statements.
const entries = 4000

// If childEnv is set, the test binary runs the library. Its value is the kind of pool and the DSN.
const childEnv = "BENCH_BLOCKED"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		fmt.Fprintln(os.Stderr, "blocked process:", runUntilKilled(text))
		os.Exit(2)
	}
	os.Exit(testservers.Main(m))
}

func runUntilKilled(text string) error {
	pool, dsn, _ := strings.Cut(text, " ")
	db, err := open(pool, dsn)
	if err != nil {
		return err
	}
	c, err := compensator.New(context.Background(), compensator.Config{DB: db})
	if err != nil {
		return err
	}
	if err := register(c); err != nil {
		return err
	}
	fmt.Print("r")
	return c.Run(context.Background())
}

func open(pool, dsn string) (*sql.DB, error) {
	if pool == "plain" {
		return sql.Open("mysql", dsn)
	}
	return compensator.Open("mysql", dsn)
}

type order struct{ Number int }

func register(c *compensator.Compensator) error {
	if _, err := compensator.Handle(context.Background(), c, "close", func(context.Context, *compensator.Entry, order) error { return nil }, nil); err != nil {
		return err
	}
	_, err := compensator.HandleTx(context.Background(), c, "pay", func(ctx context.Context, tx *compensator.ScopedTx, _ *compensator.Entry, o order) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO paid (number) VALUES (?)", o.Number)
		return err
	}, nil)
	return err
}

type block struct {
	name, only string
	begin, end []string
	freeze     bool // stops the server's process
}

var blocks = []block{
	{name: "global read lock", begin: []string{"FLUSH TABLES WITH READ LOCK"}, end: []string{"UNLOCK TABLES"}},
	{name: "backup stage", only: "mariadb", begin: []string{"BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL", "BACKUP STAGE BLOCK_COMMIT"}, end: []string{"BACKUP STAGE END"}},
	{name: "backup lock", only: "mysql", begin: []string{"LOCK INSTANCE FOR BACKUP"}, end: []string{"UNLOCK INSTANCE"}},
	{name: "frozen server", freeze: true},
	{name: "table lock", begin: []string{"LOCK TABLES common_process_log WRITE"}, end: []string{"UNLOCK TABLES"}},
}

// A row of the table shows the most sessions that one process held, and how many entries were lost.
func TestBlocked(t *testing.T) {
	if *seconds < 1 {
		t.Fatalf("-seconds %d: want at least 1", *seconds)
	}
	server := testservers.NewSQL(t, "--max-connections=500")
	measured := 0
	fmt.Printf("\n%s, %d processes, blocked for %d s\n\n| block | pool | most sessions of a process | entries | not succeeded | paid twice or never |\n| --- | --- | ---: | ---: | ---: | ---: |\n", server.Flavor, processes, *seconds)
	for _, b := range blocks {
		for _, pool := range []string{"connector", "plain"} {
			if b.only != "" && b.only != server.Flavor || !strings.Contains(b.name+" "+pool, *only) {
				continue
			}
			t.Run(b.name+", "+pool, func(t *testing.T) {
				measured++
				most, lost, wrong := run(t, server, b, pool)
				fmt.Printf("| %s | %s | %d | %d | %d | %d |\n", b.name, pool, most, entries, lost, wrong)
			})
		}
	}
	if measured == 0 {
		t.Errorf("-only %q: no block and no pool whose names contain this text, on %s", *only, server.Flavor)
	}
}

func run(t *testing.T, server *testservers.SQLServer, b block, pool string) (most, lost, wrong int) {
	dsn := server.Database(t, "interpolateParams=true")
	admin, err := sql.Open("mysql", dsn)
	must(t, err)
	defer admin.Close()
	must(t, compensator.Migrate(t.Context(), admin))
	exec1 := func(query string) {
		_, err := admin.ExecContext(t.Context(), query)
		must(t, err, query)
	}
	exec1("CREATE TABLE paid (number INT NOT NULL, KEY (number)) ENGINE=InnoDB")
	record(t, admin, !b.freeze)
	for i := range processes {
		start(t, admin, dsn, pool, i)
	}
	count := func(from string) (n int) {
		must(t, admin.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+from).Scan(&n))
		return n
	}
	await(t, func() bool { return count("common_process_log WHERE state=1") > 0 }, "the processes are at work")
	holder, err := admin.Conn(t.Context())
	must(t, err)
	for _, statement := range b.begin {
		_, err := holder.ExecContext(t.Context(), statement)
		must(t, err, statement)
	}
	if b.freeze {
		server.Pause()
		time.Sleep(time.Duration(*seconds) * time.Second)
		server.Resume()
	}
	left := time.Duration(*seconds) * time.Second
	if b.freeze {
		left = 5 * time.Second
	}
	for end := time.Now().Add(left); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		most = max(most, sessions(t, admin))
	}
	for _, statement := range b.end {
		_, err := holder.ExecContext(t.Context(), statement)
		must(t, err, statement)
	}
	must(t, holder.Close())
	await(t, func() bool { return count("common_process_log WHERE state IN (0,-1,-3)") == 0 }, "every entry ends")
	return most, count("common_process_log WHERE state<>1"),
		count("(SELECT l.id FROM common_process_log l LEFT JOIN paid p ON p.number=l.user_id WHERE l.business_type='pay' GROUP BY l.id HAVING COUNT(p.number)<>1) w")
}

// record records the entries. If the parameter transactional is true, every second entry has the type pay, whose
// handler is transactional.
//
// A test that freezes the server passes false. A frozen server cannot report its sessions, so the test counts them
// after the server has resumed. At that time, transactional handlers would run and add sessions to the count.
func record(t *testing.T, admin *sql.DB, transactional bool) {
	types := []string{"close", "close"}
	if transactional {
		types[1] = "pay"
	}
	c, err := compensator.New(t.Context(), compensator.Config{DB: admin})
	must(t, err)
	defer c.Close()
	step := time.Duration(*seconds) * time.Second * 5 / 4 / entries
	for from := 0; from < entries; from += 500 {
		err := c.InTx(t.Context(), func(ctx context.Context, tx *compensator.ScopedTx) error {
			some := make([]compensator.NewEntry, 0, 500)
			for n := from; n < from+500; n++ {
				some = append(some, compensator.NewEntry{BusinessType: types[n%2], Content: fmt.Appendf(nil, `{"Number":%d}`, n),
					Options: compensator.Options{Delay: time.Duration(n) * step, UserID: fmt.Sprint(n)}})
			}
			_, err := c.Record(ctx, tx, some...)
			return err
		})
		must(t, err)
	}
}

func start(t *testing.T, admin *sql.DB, dsn, pool string, i int) {
	config, err := mysql.ParseDSN(dsn)
	must(t, err)
	config.User, config.Passwd = fmt.Sprintf("process%d", i), "secret"
	for _, statement := range []string{"CREATE USER IF NOT EXISTS " + config.User + " IDENTIFIED BY 'secret'", "GRANT ALL ON " + config.DBName + ".* TO " + config.User} {
		_, err := admin.ExecContext(t.Context(), statement)
		must(t, err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+pool+" "+config.FormatDSN())
	cmd.Stderr, cmd.SysProcAttr = nil, child.Attributes(nil, syscall.SIGKILL)
	ready, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_, err = ready.Read(make([]byte, 1))
	must(t, err, "a process did not start")
}

func sessions(t *testing.T, admin *sql.DB) (most int) {
	err := admin.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(n),0) FROM (SELECT COUNT(*) AS n FROM information_schema.processlist WHERE user LIKE 'process%' GROUP BY user) s").Scan(&most)
	must(t, err)
	return most
}

func await(t *testing.T, check func() bool, what string) {
	for deadline := time.Now().Add(5 * time.Minute); !check(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func must(t *testing.T, err error, what ...string) {
	t.Helper()
	if err != nil {
		t.Fatal(err, what)
	}
}
