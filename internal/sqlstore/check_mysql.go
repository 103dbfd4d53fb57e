package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compensator-go/compensator/internal/mysqlerr"
	"github.com/compensator-go/compensator/processlog"
)

func checkMySQL(ctx context.Context, s *Store) []error {
	session, err := readMySQLSession(ctx, s.db)
	if slices.ContainsFunc(session.charsets[:], garbles) {
		// The session's charset changes the texts that the server sends. So no other value from this session can be
		// trusted.
		return []error{session.charsetProblem()}
	}
	if err != nil {
		return []error{fmt.Errorf("compensator: read the server's settings: %w", err)}
	}
	s.version, s.maxContent, s.selectLimit = session.version, session.contentLimit(), session.bound
	s.d.snapshots, s.d.galera, s.d.foldsNames = session.snapshots, session.galera, session.foldsNames
	if session.galera {
		s.notes = append(s.notes, "a Galera node does not show open transactions of other nodes: ErrNotFound of Resolve is final only on the node on which the transaction ran, or when that node is gone; send this service's connections to one node at a time")
	}
	if read := session.charsets[2]; read == "utf8mb3" || read == "utf8" {
		s.notes = append(s.notes, "the session's charset is "+read+": an idempotency key with a character of four bytes (an emoji), which another process may record, is read wrongly, and its outcome matches no row; set charset=utf8mb4 in the DSN")
	}
	problems := session.problems()
	if s.table.database == "" {
		s.setSchema(session.database)
		if err := s.leftElsewhere(ctx); err != nil {
			problems = append(problems, err)
		}
	}
	if session.cutsReads() {
		return problems // The checks below read several rows, and the session would cut off their results.
	}
	if session.lockWait == 0 && s.ownPool == nil {
		problems = append(problems, &processlog.FieldError{Field: "innodb_lock_wait_timeout", Reason: "is 0 in the session: MariaDB then fails with error 1180 where SKIP LOCKED " +
			"should skip a locked row; want 1 or more, or open the database on Connector"})
	}
	if session.emptyIsNull() {
		return problems // With the mode EMPTY_STRING_IS_NULL, the table's definition cannot be read.
	}
	table, err := readMySQLTable(ctx, s)
	if err != nil {
		return append(problems, fmt.Errorf("compensator: read the table's definition: %w", err))
	}
	s.foreign = table.side.foreign(s.table)
	if problems = append(problems, table.problems(s.table)...); len(problems) > 0 {
		return problems // The checks below would fail for the same reasons.
	}
	if s.ownPool == nil && session.replicated && keepsReadOnly(ctx, s) {
		s.notes = append(s.notes, "the pool keeps connections to a server that has become read-only: after a switchover every write through them fails; set rejectReadOnly=true in the DSN, or open the database on Connector")
	}
	if s.schema != "" {
		// On Vitess or a proxy, DATABASE() may return a name that statements cannot use, so try it.
		var here bool
		err := s.db.QueryRowContext(ctx, s.sql(readMetaTwice, "same", s.table.quoted("_meta"))).Scan(&here)
		if err := unlessRefused(err); err != nil {
			return []error{fmt.Errorf("compensator: read the log with the name of its database: %w", err)}
		}
		if !here {
			s.setSchema("")
		}
	}
	return checkInstruments(ctx, s)
}

// leftElsewhere returns an error if the checked session is in another database than a new connection, because some code
// has sent USE. It opens a new connection by the pool's Connector. Without a Connector it checks nothing.
func (s *Store) leftElsewhere(ctx context.Context) error {
	if s.ownPool == nil {
		return nil
	}
	var begin sql.NullString
	if err := s.ownPool.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&begin); err != nil {
		return fmt.Errorf("compensator: read the name of the database: %w", err)
	}
	if begin.String == s.schema {
		return nil
	}
	return &processlog.FieldError{Field: "DB", Reason: fmt.Sprintf("opens its sessions in database %q, but one of them is in %q: some code has sent USE; let it change back", begin.String, s.schema)}
}

const readMetaTwice = "SELECT COUNT(*)>0 FROM {meta} AS named JOIN {same} AS same ON same.`name`=named.`name` AND same.`value`=named.`value` WHERE named.`name`='fingerprint' AND {in schema}"

// keepsReadOnly reports whether the driver keeps a connection after the server has become read-only. It updates entry 0,
// which does not exist.
func keepsReadOnly(ctx context.Context, s *Store) bool {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return false // The server has no READ ONLY transactions.
	}
	defer func() { _ = tx.Rollback() }()
	_, err = tx.ExecContext(ctx, s.sql("UPDATE {log}{by id} SET version=version+1 WHERE id=0"))
	return mysqlerr.IsReadOnly(err)
}

type mysqlSession struct {
	version      string
	database     string
	autocommit   bool
	lockWait     int // seconds
	sqlMode      string
	charsets     [3]string // of the client, the connection and the results; the last one empty: results are not converted
	maxPacket    int64
	logBin       bool
	binlogFormat string
	readOnly     string // 0 or 1, or a word on newer servers
	replicated   bool   // whether another server may take over
	chains       bool   // whether each COMMIT begins the next transaction
	galera       bool
	snapshots    bool // innodb_snapshot_isolation
	foldsNames   bool // lower_case_table_names=2
	bound        time.Duration
	limited      bool // whether sql_select_limit is set
	narrow       bool // whether sql_big_selects is 0, which a max_join_size causes
	lax          bool // unique_checks=0
	clockSet     bool // whether timestamp is set
	unlogged     bool // sql_log_bin=0
	readOnlyTx   bool // whether transactions begin as READ ONLY
}

func (m mysqlSession) cutsReads() bool { return m.limited || m.narrow }

func readMySQLSession(ctx context.Context, db *sql.DB) (mysqlSession, error) {
	var m mysqlSession
	var database sql.NullString
	// Read the charsets first, and as bytes, because a session may garble the other columns.
	err := db.QueryRowContext(ctx, "SELECT "+mysqlTexts("@@character_set_client, @@character_set_connection, COALESCE(@@character_set_results,'')")+
		", VERSION(), DATABASE(), @@autocommit, @@innodb_lock_wait_timeout, @@sql_mode, @@max_allowed_packet").
		Scan(&m.charsets[0], &m.charsets[1], &m.charsets[2], &m.version, &database, &m.autocommit, &m.lockWait, &m.sqlMode, &m.maxPacket)
	if err != nil {
		return m, err
	}
	m.database = database.String
	// A server that lacks one of these variables lacks its effect too, so ignore the error.
	_ = db.QueryRowContext(ctx, fmt.Sprintf("SELECT @@sql_select_limit<%d, @@sql_big_selects=0, @@unique_checks=0, ABS(UNIX_TIMESTAMP(SYSDATE())-@@timestamp)>=10000", math.MaxInt64)).
		Scan(&m.limited, &m.narrow, &m.lax, &m.clockSet)
	if m.cutsReads() {
		return m, nil
	}
	rows, err := db.QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('log_bin','sql_log_bin','tx_read_only','transaction_read_only','binlog_format','read_only','wsrep_on','completion_type','innodb_snapshot_isolation','lower_case_table_names','max_statement_time','max_execution_time')")
	if err != nil {
		return m, err
	}
	defer rows.Close()
	for rows.Next() { // Each server returns the variables that it has.
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return m, err
		}
		switch strings.ToLower(name) {
		case "log_bin":
			m.logBin = isOn(value)
			m.replicated = m.replicated || m.logBin
		case "sql_log_bin":
			m.unlogged = !isOn(value)
		case "tx_read_only", "transaction_read_only": // MariaDB's name and MySQL's name
			m.readOnlyTx = m.readOnlyTx || isOn(value)
		case "binlog_format":
			m.binlogFormat = value
		case "wsrep_on":
			m.galera = isOn(value)
			m.replicated = m.replicated || m.galera
		case "innodb_snapshot_isolation":
			m.snapshots = isOn(value)
		case "lower_case_table_names":
			m.foldsNames = value == "2"
		case "read_only":
			m.readOnly = value
		case "max_statement_time": // MariaDB, in seconds
			m.bound = boundOf(value, time.Second)
		case "max_execution_time": // MySQL, in milliseconds
			m.bound = boundOf(value, time.Millisecond)
		case "completion_type":
			m.chains = strings.EqualFold(value, "CHAIN") || value == "1"
		}
	}
	return m, rows.Err()
}

func boundOf(value string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseFloat(value, 64)
	return time.Duration(n * float64(unit))
}

func isOn(value string) bool { return value == "1" || strings.EqualFold(value, "ON") }

func (m mysqlSession) problems() []error {
	var problems []error
	refuse := func(field, reason string) {
		problems = append(problems, &processlog.FieldError{Field: field, Reason: reason})
	}
	if !m.supported() {
		refuse("server version", m.version+": want MySQL 8.0.1 or MariaDB 10.6, the first with SKIP LOCKED")
	}
	if !m.autocommit {
		refuse("autocommit", "is 0 in the session (DSN or init_connect): statements outside a transaction would never be committed")
	}
	if m.chains {
		refuse("completion_type", "is CHAIN in the session (DSN or server): statements after a COMMIT would never be committed; want NO_CHAIN")
	}
	if !strings.Contains(m.sqlMode, "STRICT_TRANS_TABLES") && !strings.Contains(m.sqlMode, "STRICT_ALL_TABLES") {
		refuse("sql_mode", strconv.Quote(m.sqlMode)+": without STRICT_TRANS_TABLES the server cuts values silently")
	}
	if m.limited {
		refuse("sql_select_limit", "is set in the session (DSN or server): rows beyond it would look as if they did not exist; leave it at its default")
	}
	if m.narrow {
		refuse("max_join_size", "is limited in the session (DSN or server): the server refuses statements that may look at more rows (error 1104), and polling would stop; want sql_big_selects=1")
	}
	if m.lax {
		refuse("unique_checks", "is 0 in the session (DSN or server): an idempotency key could be recorded twice; want 1")
	}
	if m.clockSet {
		refuse("timestamp", "is set in the session (DSN): entries would be due by that clock; leave it at its default")
	}
	if m.readOnlyTx {
		refuse("transaction_read_only", "is 1 in the session (DSN or server): nothing could be recorded; want 0")
	}
	if m.logBin && m.unlogged {
		refuse("sql_log_bin", "is 0 in the session: no replica would have the entries; want 1")
	}
	if m.emptyIsNull() {
		refuse("sql_mode", strconv.Quote(m.sqlMode)+": under EMPTY_STRING_IS_NULL the log's empty texts would be NULL, which its columns refuse; remove that mode in the DSN or on the server")
	}
	if problem := m.charsetProblem(); problem != nil {
		problems = append(problems, problem)
	}
	if m.logBin && strings.EqualFold(m.binlogFormat, "STATEMENT") {
		refuse("binlog_format", "is STATEMENT: writes at READ COMMITTED fail (error 1665); want ROW or MIXED")
	}
	if m.readOnly != "" && m.readOnly != "0" && m.readOnly != "OFF" {
		refuse("read_only", "the server is a read-only replica: entries must be read and written on the primary")
	}
	return problems
}

// charsetProblem names the first charset that does not carry UTF-8.
func (m mysqlSession) charsetProblem() error {
	for i, charset := range m.charsets {
		if name := [...]string{"character_set_client", "character_set_connection", "character_set_results"}[i]; !carriesUTF8(charset, i == 2) {
			return &processlog.FieldError{Field: name, Reason: "is " + charset + " in the session (DSN or server): the server would store other bytes than were recorded; want charset=utf8mb4 in the DSN"}
		}
	}
	return nil
}

func garbles(charset string) bool {
	return slices.Contains([]string{"swe7", "ucs2", "utf16", "utf16le", "utf32"}, charset)
}

func (m mysqlSession) emptyIsNull() bool { return strings.Contains(m.sqlMode, "EMPTY_STRING_IS_NULL") }

// A result charset may also be empty or binary: the server then sends the stored bytes.
func carriesUTF8(charset string, read bool) bool {
	switch charset {
	case "utf8mb4", "utf8mb3", "utf8":
		return true
	case "", "binary":
		return read
	}
	return false
}

// contentLimit is half of the largest packet, because a client may double the size of values.
func (m mysqlSession) contentLimit() int { return int(m.maxPacket-packetOverhead) / 2 }

// packetOverhead is kept free in a packet, in bytes, for other columns and the statement itself.
const packetOverhead = 16 << 10

func (m mysqlSession) supported() bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(m.version, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return false
	}
	if strings.Contains(m.version, "MariaDB") {
		return major > 10 || major == 10 && minor >= 6
	}
	return major > 8 || major == 8 && (minor > 0 || patch >= 1)
}
