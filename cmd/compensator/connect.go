package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

const (
	dsnVariable   = "COMPENSATOR_DSN"
	redisVariable = "COMPENSATOR_REDIS"
)

type flags struct {
	dsn, dsnFile, redis, table, prefix string
	format                             format
}

func (f *flags) addFlags(root *cobra.Command) {
	persistentFlags := root.PersistentFlags()
	persistentFlags.StringVar(&f.dsn, "dsn", "", "DSN of the database: user@tcp(host)/shop, or file:log.db. Better use "+dsnVariable+" or --dsn-file, which ps does not show")
	persistentFlags.StringVar(&f.dsnFile, "dsn-file", "", "a file that holds the DSN")
	persistentFlags.StringVar(&f.redis, "redis", "", "Redis of the services: host:port or redis://…, or host:port,host:port for a cluster. The default is "+redisVariable+", which is better with a password. Without Redis, requeued entries wait for the reconciler")
	persistentFlags.StringVar(&f.table, "table", compensator.DefaultTable, "the log's table, optionally as database.table")
	persistentFlags.StringVar(&f.prefix, "prefix", "compensator", "prefix of the services' keys in Redis")
	f.format = "table"
	persistentFlags.VarP(&f.format, "output", "o", strings.Join(formats, ", "))
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// databaseFlags returns a warning if the DSN came from a place that other people can read.
func (f *flags) databaseFlags(env func(string) string) (dsn, warning string, err error) {
	switch {
	case f.dsn != "" && f.dsnFile != "":
		return "", "", newUsageError("give --dsn or --dsn-file, not both")
	case f.dsn != "":
		if cfg, err := mysql.ParseDSN(f.dsn); err == nil && cfg.Passwd != "" {
			warning = "the password in --dsn is visible in ps and in the shell's history: use " + dsnVariable + " or --dsn-file"
		}
		return f.dsn, warning, nil
	case f.dsnFile != "":
		text, err := os.ReadFile(f.dsnFile)
		if err != nil {
			return "", "", newUsageError("%v", err)
		}
		return strings.TrimSpace(string(text)), "", nil
	}
	if dsn = env(dsnVariable); dsn == "" {
		return "", "", newUsageError("no database: set %s, or give --dsn-file or --dsn", dsnVariable)
	}
	return dsn, "", nil
}

// A DSN may set other timeouts.
const (
	dialLimit = 10 * time.Second
	readLimit = 30 * time.Second
	poolSize  = 4
)

// openDB opens the database of a DSN. kind is "mysql" or "sqlite".
func openDB(dsn string, create bool) (db *sql.DB, kind string, err error) {
	if isSQLite(dsn) {
		db, err = sql.Open("sqlite", sqliteDSN(dsn, create))
		return db, "sqlite", err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, "", newUsageError("the DSN is neither one of MySQL, user:password@tcp(host:3306)/shop, nor one of SQLite, which begins with file:") // Do not include the parser's error, because it may contain a part of the password.
	}
	for _, limit := range []struct {
		of *time.Duration
		is time.Duration
	}{{&cfg.Timeout, dialLimit}, {&cfg.ReadTimeout, readLimit}, {&cfg.WriteTimeout, readLimit}} {
		if *limit.of == 0 {
			*limit.of = limit.is
		}
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, "", newUsageError("the DSN: %v", err)
	}
	db = sql.OpenDB(compensator.Connector(connector))
	db.SetMaxOpenConns(poolSize)
	return db, "mysql", nil
}

func isSQLite(dsn string) bool { return strings.HasPrefix(dsn, "file:") }

// sqliteDSN adds the settings that the command needs to a DSN of SQLite. If the parameter create is true, SQLite
// creates a missing file. Only the command "migrate" asks for that.
func sqliteDSN(dsn string, create bool) string {
	file, query, _ := strings.Cut(dsn, "?")
	settings, err := url.ParseQuery(query)
	if err != nil {
		return dsn // Return the invalid DSN, because the driver will report the error.
	}
	if !settings.Has("mode") {
		settings.Set("mode", map[bool]string{true: "rwc", false: "rw"}[create])
	}
	if !settings.Has("_txlock") {
		settings.Set("_txlock", "immediate")
	}
	if !strings.Contains(query, "busy_timeout") {
		settings.Add("_pragma", "busy_timeout(10000)")
	}
	return file + "?" + settings.Encode()
}

// openRedis returns nil if no Redis address is given.
func (f *flags) openRedis(env func(string) string) (redis.UniversalClient, error) {
	address := f.redis
	if address == "" {
		address = env(redisVariable)
	}
	switch {
	case address == "":
		return nil, nil
	case strings.Contains(address, "@") && !strings.Contains(address, "://"): // Without a scheme, the text would be parsed as a host name, and every error would show it with the password.
		return nil, newUsageError("--redis: an address with a user or a password must begin with redis://, as in redis://user:password@host:port/db")
	case !strings.Contains(address, "://"):
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(address, ",")}), nil
	case strings.Contains(address, "addr="):
		opts, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, errRedis
		}
		return redis.NewClusterClient(opts), nil
	}
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, errRedis
	}
	return redis.NewClient(opts), nil
}

var errRedis = newUsageError("--redis: give host:port or redis://user:password@host:port/db. For a cluster give host:port,host:port or redis://user:password@host:port?addr=host:port")

const actorPrefix = "cli:"

// The program cannot verify the names in an actor.
func actor() admin.Actor {
	name, host := os.Getenv("USER"), "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	id := []rune(strings.ToValidUTF8(actorPrefix+name+"@"+host, "?"))
	return admin.Actor{ID: string(id[:min(len(id), processlog.MaxIdempotencyKey)])}
}

// Each access level includes the levels before it.
type accessLevel int

const (
	readAccess    accessLevel = iota // the command can read the tables of the log
	operateAccess                    // readAccess, and the tables of Config.Operations exist
	changeAccess                     // operateAccess, and the server has passed the check for changes
)

type session struct {
	*admin.Admin
	c     *compensator.Compensator
	db    *sql.DB
	store *console
	redis redis.UniversalClient // nil if no Redis address is given
	actor admin.Actor

	rules    *rules
	setting  processlog.Setting // the setting of the policy, as read when the session began
	maxNamed int                // number of entries that the command names, even if it changes them one by one
}

// openSession checks the server only for commands that change something, because the check needs rights that a reader
// lacks.
func (p *program) openSession(ctx context.Context, level accessLevel) (*session, error) {
	dsn, warning, err := p.flags.databaseFlags(p.env)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		p.printf("%s", warning)
	}
	s := &session{actor: actor()}
	if s.db, _, err = openDB(dsn, false); err != nil {
		return nil, err
	}
	if err = s.begin(ctx, p, level); err != nil {
		return nil, errors.Join(p.explainNoLog(err), s.Close())
	}
	return s, nil
}

func (s *session) begin(ctx context.Context, p *program, level accessLevel) (err error) {
	f := p.flags
	if s.redis, err = f.openRedis(p.env); err != nil {
		return err
	}
	if s.store, err = openConsole(ctx, s.db, f.table, level); err != nil {
		return err
	}
	s.c, err = compensator.New(ctx, compensator.Config{Store: s.store, Redis: s.redis, Prefix: f.prefix,
		Logger: slog.New(slog.DiscardHandler), Operations: &compensator.Operations{Attempts: s.store.keepsAttempts(ctx), Instances: s.store.keepsInstances(ctx)}})
	if err != nil {
		s.store = nil // compensator.New has closed the store.
		return err
	}
	if s.rules, s.setting, err = openRules(ctx, s.store); err != nil {
		return err
	}
	mayAct := func(ctx context.Context, a admin.Actor, right admin.Right, subject admin.Subject) bool { // The policy applies in addition to the grants of the database user.
		if subject.Count > 0 {
			subject.Count = max(subject.Count, s.maxNamed)
		}
		return (right != admin.RequeueSucceeded || p.canRepeat) && s.rules.May(ctx, a, right, subject)
	}
	s.Admin, err = admin.New(s.c, admin.Options{Access: admin.AccessFunc(mayAct), ReadOnly: p.readOnly, ReadTime: p.readTime})
	return err
}

func (p *program) explainNoLog(err error) error {
	var field *compensator.FieldError
	var exitErr *exitError
	switch {
	case errors.As(err, &exitErr), isDenied(err):
		return err
	case isNoFile(err):
		return &exitError{code: codeDatabase, err: errors.New("the file of the database does not exist or cannot be opened. The command migrate creates it")} // SQLite itself says "out of memory (14)".
	case isNoTable(err):
		return &exitError{code: codeDatabase, err: fmt.Errorf("the database has no log %s: name another table with --table, or create one with \"compensator migrate\" (%w)", p.flags.table, err)}
	case errors.As(err, &field) && field.Field != "Prefix" && field.Field != "Table":
		return &exitError{code: codeDatabase, err: err} // A setting of the server is wrong, not a flag, so this is no wrong usage.
	}
	return err
}

func isNoFile(err error) bool {
	var file *sqlite.Error
	return errors.As(err, &file) && file.Code()&0xff == sqlite3.SQLITE_CANTOPEN
}

func isNoTable(err error) bool {
	var mysqlErr *mysql.MySQLError
	return errors.As(err, &mysqlErr) && mysqlErr.Number == 1146 || strings.Contains(err.Error(), "no such table")
}

// Close closes the connections. It first waits up to 5 s until the entries that the command has changed are enqueued.
func (s *session) Close() error {
	var errs []error
	switch {
	case s.c != nil:
		errs = append(errs, s.c.Close())
	case s.store != nil:
		errs = append(errs, s.store.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	return errors.Join(append(errs, s.db.Close())...)
}

// Log lines of drivers would mix with the output.
func silenceDrivers() {
	_ = mysql.SetLogger(discard{})
	redis.SetLogger(discard{})
}
