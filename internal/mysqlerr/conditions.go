package mysqlerr

import "strings"

// Blame says whether an error is the fault of a statement or of the server.
type Blame uint8

const (
	// The same statement fails with the same error each time.
	Statement Blame = iota

	// Doubtful errors do not show whether the server or the statement is at fault. Both are possible.
	Doubtful

	// Server errors mean that the server serves no client, or accepts no writes. No statement can avoid them.
	Server
)

type condition struct {
	blame  Blame
	reason string
}

// conditions lists, by number, the errors that were considered. An error from 1000 on that is not listed is a Statement
// error. The sources are the message lists of MariaDB 10.11 and MySQL 9.7 (perror) and the error pages of TiDB.
//
// From 1900 on, some numbers mean one error on MariaDB and another on MySQL. None of these numbers is listed as Server.
//
// Errors of opening a connection (1045, 1129, 1130, 3118, 4151) are not listed, because an attempt
// whose transaction cannot begin never counts.
var conditions = map[uint16]condition{
	1004: {Doubtful, "cannot create a file"},
	1005: {Doubtful, "cannot create a table, a temporary one too"},
	1015: {Doubtful, "cannot lock a file"},
	1016: {Doubtful, "cannot open a file"},
	1017: {Doubtful, "cannot find a file"},
	1018: {Doubtful, "cannot read a directory"},
	1021: {Server, "disk full"},
	1023: {Doubtful, "error on close of a file"},
	1024: {Doubtful, "error reading a file"},
	1025: {Doubtful, "error on rename of a file"},
	1026: {Doubtful, "error writing a file"},
	1028: {Doubtful, "sort aborted"},
	1030: {Doubtful, "error of the storage engine"},
	1114: {Server, "table full: the disk or the tablespace; tableFull tells the statement's own temporary table"},
	1878: {Doubtful, "cannot write a temporary file"},
	3019: {Server, "undo log full"},
	3675: {Server, "disk full"},
	3884: {Server, "no temporary tablespace left for this session"},
	4139: {Doubtful, "index file full (MariaDB)"},

	// Damaged data or files are Doubtful, so that the entry becomes dead after repeated attempts.
	1032: {Doubtful, "an index names a record that is missing"},
	1033: {Doubtful, "wrong information in a file (MariaDB)"},
	1034: {Doubtful, "index corrupt"},
	1035: {Doubtful, "old key file"},
	1036: {Doubtful, "table is read only"},
	1194: {Doubtful, "table marked as crashed"},
	1195: {Doubtful, "table crashed, repair failed"},
	1712: {Doubtful, "index corrupt"},
	1812: {Doubtful, "tablespace missing"},
	1814: {Doubtful, "tablespace discarded, for example during an import"},
	1817: {Doubtful, "index corrupt"},
	1877: {Doubtful, "table corrupt"},
	1932: {Doubtful, "table missing in its engine (MariaDB)"},
	3185: {Doubtful, "no master key in the keyring (MySQL)"},

	1037: {Doubtful, "out of memory"},
	1038: {Doubtful, "out of sort memory"},
	1041: {Doubtful, "out of memory"},
	1135: {Server, "cannot create a thread"},
	1206: {Doubtful, "lock table full"},
	1637: {Server, "too many concurrent transactions"},
	3015: {Doubtful, "engine out of memory"},
	3044: {Doubtful, "memory allocation failed"},
	3170: {Doubtful, "memory capacity exceeded"},
	3985: {Doubtful, "no resources for a metadata lock"},
	4081: {Doubtful, "global memory limit: connection closed (MySQL)"},
	4082: {Doubtful, "memory limit of the connection: closed (MySQL)"},
	8001: {Doubtful, "memory limit of a query (TiDB)"},
	8175: {Doubtful, "query cancelled for the server's memory (TiDB)"},

	1040: {Server, "too many connections"},
	1203: {Server, "too many connections of this user"},
	1226: {Server, "a user's resource limit"},
	1461: {Server, "max_prepared_stmt_count is used up by all clients together"},

	1020: {Doubtful, "record changed since the snapshot (MariaDB)"},
	1099: {Doubtful, "the session was left inside LOCK TABLES"},
	1100: {Doubtful, "the session was left inside LOCK TABLES"},
	1192: {Doubtful, "the session was left with locked tables or a transaction"},
	1205: {Doubtful, "lock wait timeout"},
	1213: {Doubtful, "deadlock; failed certification (Galera)"},
	1223: {Doubtful, "the session holds a conflicting read lock"},
	1402: {Doubtful, "XA branch rolled back"},
	1613: {Doubtful, "XA branch rolled back: timeout"},
	1614: {Doubtful, "XA branch rolled back: deadlock"},
	1689: {Doubtful, "lock wait given up for an exclusive lock"},
	3058: {Doubtful, "deadlock on GET_LOCK"},
	3132: {Doubtful, "deadlock of the locking service"},
	3133: {Doubtful, "timeout of the locking service"},
	3177: {Doubtful, "lock refused by the engine"},
	3572: {Doubtful, "NOWAIT found a lock"},
	4145: {Doubtful, "BACKUP STAGE is active (MariaDB)"},
	8002: {Doubtful, "write conflict of a SELECT FOR UPDATE (TiDB)"},
	8005: {Doubtful, "write conflict of an optimistic transaction (TiDB)"},
	8020: {Doubtful, "table is locked (TiDB)"},
	8022: {Doubtful, "commit failed, safe to retry (TiDB)"},
	9004: {Doubtful, "lock of a transaction in flight (TiDB)"},
	9007: {Doubtful, "write conflict (TiDB)"},

	1180: {Doubtful, "error during COMMIT"},
	1534: {Doubtful, "cannot write a row to the binary log"},
	1598: {Doubtful, "the binary log cannot be written, and the server aborts (MySQL); a wrong format (MariaDB)"},
	1950: {Doubtful, "a GTID out of order, after a switchover (MariaDB)"},
	3801: {Doubtful, "cannot encrypt the binary log"},
	1181: {Doubtful, "error during ROLLBACK"},
	1964: {Doubtful, "an earlier commit failed (MariaDB)"},
	3100: {Doubtful, "a replication hook refused (Group Replication)"},
	3101: {Doubtful, "failed certification (Group Replication)"},
	3197: {Doubtful, "XA commit not possible now"},
	3781: {Server, "held while a new primary catches up (Group Replication)"},
	3782: {Server, "held while a new primary catches up (Group Replication)"},
	3783: {Server, "held while a new primary catches up (Group Replication)"},
	3796: {Server, "the member is recovering (Group Replication)"},
	3799: {Server, "Group Replication is stopping"},
	3797: {Server, "waiting for the group's transactions (Group Replication)"},
	3798: {Server, "waiting for the group's transactions (Group Replication)"},
	4060: {Doubtful, "the transaction was rolled back (MyRocks)"},
	4094: {Doubtful, "the primary is changing (MySQL, Group Replication)"},

	1317: {Doubtful, "KILL QUERY"},
	1927: {Doubtful, "connection killed (MariaDB)"},
	1969: {Doubtful, "max_statement_time exceeded (MariaDB)"},
	3024: {Doubtful, "max_execution_time exceeded (MySQL)"},
	3169: {Doubtful, "session killed"},
	4031: {Doubtful, "session idle for too long (MySQL)"},
	8253: {Doubtful, "query killed as a runaway (TiDB)"},

	// Faults of connections. In this group, the servers send the numbers below 2000. The numbers from 2002 to 2055
	// belong to client libraries, but proxies send them too.
	1043: {Doubtful, "bad handshake"},
	1080: {Server, "thread closed by force at shutdown"},
	1152: {Doubtful, "connection aborted"},
	1154: {Doubtful, "read error from the pipe"},
	1155: {Doubtful, "fcntl failed"},
	1156: {Doubtful, "packets out of order"},
	1157: {Doubtful, "cannot uncompress a packet"},
	1158: {Doubtful, "error reading packets"},
	1159: {Doubtful, "timeout reading packets"},
	1160: {Doubtful, "error writing packets"},
	1161: {Doubtful, "timeout writing packets"},
	1184: {Doubtful, "connection aborted"},
	1429: {Doubtful, "no connection to a foreign server (FEDERATED)"},
	1430: {Doubtful, "error of a foreign server (FEDERATED)"},
	2002: {Server, "a proxy cannot reach the server"},
	2003: {Server, "a proxy cannot reach the server"},
	2006: {Doubtful, "a proxy has lost the server"},
	2013: {Doubtful, "a proxy has lost the server"},
	2055: {Doubtful, "a proxy has lost the server"},

	// Number 1290 is not listed: preventsWrites decides by its text.
	1047: {Server, "node not in the cluster (Galera)"},
	1053: {Server, "shutdown in progress"},
	1077: {Server, "normal shutdown"},
	1078: {Server, "the server got a signal"},
	1079: {Server, "shutdown complete"},
	1792: {Doubtful, "read-only transaction: the server's default, or the handler's own"},
	1836: {Server, "read-only mode"},
	1874: {Server, "InnoDB is read-only"},
	1881: {Server, "innodb_force_recovery"},
	3032: {Server, "offline mode"},
	3168: {Server, "server not available"},
	3989: {Server, "schema is read-only"},
	9001: {Server, "PD does not answer (TiDB); no connection to the server (ProxySQL)"},
	9002: {Server, "TiKV does not answer (TiDB)"},
	9003: {Server, "TiKV is busy (TiDB)"},
	9005: {Server, "region unavailable (TiDB)"},

	1243: {Doubtful, "unknown prepared statement, for example behind a proxy"},
	1412: {Doubtful, "table definition changed since the snapshot"},
	1467: {Doubtful, "cannot read the auto-increment value"},
	1615: {Doubtful, "the statement must be prepared again"},
	8027: {Server, "schema out of date: PD cannot be reached (TiDB)"},
	8028: {Doubtful, "schema changed since the transaction began (TiDB)"},

	1105: {Doubtful, "unknown error, which proxies send for any"},
	1296: {Doubtful, "error of an engine"},
	1297: {Doubtful, "temporary error of an engine"},

	1119: {Statement, "thread stack overrun: too deep"},
	1153: {Statement, "packet larger than max_allowed_packet"},
	1162: {Statement, "result string too long"},
	1197: {Statement, "transaction larger than max_binlog_cache_size"},
	1207: {Statement, "locks at READ UNCOMMITTED"},
	1390: {Statement, "too many placeholders"},
	1436: {Statement, "thread stack overrun: too deep"},
	1456: {Statement, "recursion limit"},
	1705: {Statement, "statement larger than max_binlog_stmt_cache_size"},
	1931: {Statement, "LIMIT ROWS EXAMINED exceeded"},
	3164: {Statement, "refused by an audit rule"},
	3231: {Statement, "write set too large (Group Replication)"},
	3636: {Statement, "recursion of a common table expression"},
	3699: {Statement, "regular expression too slow"},
	8004: {Statement, "transaction too large (TiDB)"},
	8025: {Statement, "row too large (TiDB)"},
	9006: {Statement, "transaction older than the GC life time (TiDB)"},
}

// Blames says whether the statement or the server caused an error. For an error that no server sent it returns
// Statement. If the connection broke, it returns Doubtful.
func Blames(err error) Blame {
	serverErr := answer(err)
	if serverErr == nil {
		if IsBroken(err) {
			return Doubtful // A statement of great size may break the connection each time.
		}
		return Statement
	}
	blame := conditions[serverErr.Number].blame
	if serverErr.Number > 0 && serverErr.Number < firstOfMessageList {
		blame = Doubtful
	}
	switch {
	case preventsWrites(serverErr):
		return Server
	case serverErr.Number == tableFull && (strings.Contains(serverErr.Message, "#sql") || strings.Contains(serverErr.Message, "'(temporary)'")):
		// The table without room is a temporary table of the statement, so the statement may be at fault.
		return Doubtful
	case blame == Doubtful && serverErr.Number <= lastOfFiles && outOfSystem(serverErr.Message):
		return Server
	}
	return blame
}

const (
	// The servers' message lists begin at 1000. Smaller numbers come from the operating system and from the libraries
	// mysys (1 to 50) and handler (from 120).
	firstOfMessageList = 1000

	tableFull   = 1114
	lastOfFiles = 1199
)

// outOfSystem reports whether the text of an error names ENOSPC, ENFILE, EMFILE or EDQUOT. With these errors, the
// operating system says that the server gets no more disk space, or can open no more files.
func outOfSystem(text string) bool {
	for _, cause := range []string{"No space left", "errno: 28", "error 28 ", "Too many open files", "errno: 23 ", "errno: 24", "error 24 ", "Disk quota exceeded", "errno: 122"} {
		if strings.Contains(text, cause) {
			return true
		}
	}
	return false
}
