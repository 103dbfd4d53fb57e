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

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/admin"
	"github.com/compensator-go/compensator/processlog"
)

const (
	dsnVariable   = "COMPENSATOR_DSN"
	redisVariable = "COMPENSATOR_REDIS"
)

// flags are those of every command.
type flags struct {
	dsn, dsnFile, redis, table, prefix string
	format                             format
}

func (f *flags) add(root *cobra.Command) {
	all := root.PersistentFlags()
	all.StringVar(&f.dsn, "dsn", "", "the database: user@tcp(host)/shop, or file:log.db; better "+dsnVariable+" or --dsn-file, which ps does not show")
	all.StringVar(&f.dsnFile, "dsn-file", "", "a file that holds the DSN")
	all.StringVar(&f.redis, "redis", "", "the services' Redis, host:port or redis://…, of a cluster host:port,host:port; default "+redisVariable+", as it should be where there is a password. Without it requeued entries wait for the reconciler")
	all.StringVar(&f.table, "table", compensator.DefaultTable, "the log's table, optionally as database.table")
	all.StringVar(&f.prefix, "prefix", "compensator", "of the services' keys in Redis")
	f.format = "table"
	all.VarP(&f.format, "output", "o", strings.Join(formats, ", "))
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// data is the DSN, and what to say of where it came from.
func (f *flags) data(env func(string) string) (dsn, warning string, err error) {
	switch {
	case f.dsn != "" && f.dsnFile != "":
		return "", "", usage("give --dsn or --dsn-file, not both")
	case f.dsn != "":
		if cfg, err := mysql.ParseDSN(f.dsn); err == nil && cfg.Passwd != "" {
			warning = "the password in --dsn shows in ps and in the shell's history: use " + dsnVariable + " or --dsn-file"
		}
		return f.dsn, warning, nil
	case f.dsnFile != "":
		text, err := os.ReadFile(f.dsnFile)
		if err != nil {
			return "", "", usage("%v", err)
		}
		return strings.TrimSpace(string(text)), "", nil
	}
	if dsn = env(dsnVariable); dsn == "" {
		return "", "", usage("which database? Set %s, or give --dsn-file or --dsn", dsnVariable)
	}
	return dsn, "", nil
}

// limits bound what the program waits for, where the DSN does not.
const (
	dialLimit = 10 * time.Second
	readLimit = 30 * time.Second
	poolSize  = 4
)

// openDB opens the database that a DSN names; "mysql" or "sqlite" is what DDL calls it.
func openDB(dsn string, create bool) (db *sql.DB, kind string, err error) {
	if isSQLite(dsn) {
		db, err = sql.Open("sqlite", sqliteDSN(dsn, create))
		return db, "sqlite", err
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, "", usage("the DSN is neither one of MySQL, user:password@tcp(host:3306)/shop, nor begins with file:") // what the parser says may have a part of the password
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
		return nil, "", usage("the DSN: %v", err)
	}
	db = sql.OpenDB(compensator.Connector(connector))
	db.SetMaxOpenConns(poolSize)
	return db, "mysql", nil
}

func isSQLite(dsn string) bool { return strings.HasPrefix(dsn, "file:") }

// sqliteDSN has the log's settings where the DSN leaves them open. A file that is not there is made by migrate alone.
func sqliteDSN(dsn string, create bool) string {
	file, query, _ := strings.Cut(dsn, "?")
	settings, err := url.ParseQuery(query)
	if err != nil {
		return dsn // the driver says what is wrong
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

// openRedis is nil where no Redis is named.
func (f *flags) openRedis(env func(string) string) (redis.UniversalClient, error) {
	where := f.redis
	if where == "" {
		where = env(redisVariable)
	}
	switch {
	case where == "":
		return nil, nil
	case strings.Contains(where, "@") && !strings.Contains(where, "://"): // as a host it would be in every error, with the password
		return nil, usage("--redis: with a user or a password want redis:// in front: redis://user:password@host:port/db")
	case !strings.Contains(where, "://"):
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(where, ",")}), nil
	case strings.Contains(where, "addr="):
		opts, err := redis.ParseClusterURL(where)
		if err != nil {
			return nil, errRedis
		}
		return redis.NewClusterClient(opts), nil
	}
	opts, err := redis.ParseURL(where)
	if err != nil {
		return nil, errRedis
	}
	return redis.NewClient(opts), nil
}

var errRedis = usage("--redis: want host:port, redis://user:password@host:port/db, or of a cluster host:port,host:port or redis://user:password@host:port?addr=host:port")

// actorPrefix says in the records where somebody sat.
const actorPrefix = "cli:"

// actor is who the records name: claimed, and not proved.
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

// need is what a command needs of the log.
type need int

const (
	toRead    need = iota // the rights to read
	toOperate             // the tables of Config.Operations, too
	toChange              // these, and that the server does what a change relies on
)

// session is the log, open.
type session struct {
	*admin.Admin
	c     *compensator.Compensator
	db    *sql.DB
	store *console
	redis redis.UniversalClient // nil: none
	actor admin.Actor

	rules   *rules
	setting processlog.Setting // that holds the policy, as it was when the session began
	atOnce  int                // how many the command names, though it does one after the other
}

// open connects. Only what changes something has the server tried, for that takes rights that a reader does not have.
func (p *program) open(ctx context.Context, need need) (*session, error) {
	dsn, warning, err := p.flags.data(p.env)
	if err != nil {
		return nil, err
	}
	if warning != "" {
		p.say("%s", warning)
	}
	s := &session{actor: actor()}
	if s.db, _, err = openDB(dsn, false); err != nil {
		return nil, err
	}
	if err = s.begin(ctx, p, need); err != nil {
		return nil, errors.Join(p.noLog(err), s.Close())
	}
	return s, nil
}

func (s *session) begin(ctx context.Context, p *program, need need) (err error) {
	f := p.flags
	if s.redis, err = f.openRedis(p.env); err != nil {
		return err
	}
	if s.store, err = openConsole(ctx, s.db, f.table, need); err != nil {
		return err
	}
	s.c, err = compensator.New(ctx, compensator.Config{Store: s.store, Redis: s.redis, Prefix: f.prefix,
		Logger: slog.New(slog.DiscardHandler), Operations: new(compensator.Operations)})
	if err != nil {
		s.store = nil // New has closed it
		return err
	}
	if s.rules, s.setting, err = openRules(ctx, s.store); err != nil {
		return err
	}
	access := func(ctx context.Context, a admin.Actor, right admin.Right, on admin.Subject) bool { // beside the database's grants
		if on.Count > 0 {
			on.Count = max(on.Count, s.atOnce)
		}
		return (right != admin.RequeueSucceeded || p.again) && s.rules.May(ctx, a, right, on)
	}
	s.Admin, err = admin.New(s.c, admin.Options{Access: admin.AccessFunc(access), ReadOnly: p.readOnly, ReadTime: p.readTime})
	return err
}

// noLog says what an error means of a database that could not be worked with.
func (p *program) noLog(err error) error {
	var field *compensator.FieldError
	var known *exitError
	switch {
	case errors.As(err, &known), denied(err):
		return err
	case noTable(err):
		return &exitError{code: codeDatabase, err: fmt.Errorf("there is no log %s here: --table names another one, and \"compensator migrate\" makes one (%w)", p.flags.table, err)}
	case errors.As(err, &field) && field.Field != "Prefix" && field.Field != "Table":
		return &exitError{code: codeDatabase, err: err} // the server's, not of a flag
	}
	return err
}

// noTable reports whether the database says that a table is not there.
func noTable(err error) bool {
	var answer *mysql.MySQLError
	return errors.As(err, &answer) && answer.Number == 1146 || strings.Contains(err.Error(), "no such table")
}

// Close waits for what is to be enqueued.
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

// quietDrivers keeps what drivers log out of what is printed: their errors say it.
func quietDrivers() {
	_ = mysql.SetLogger(discard{})
	redis.SetLogger(discard{})
}
