// Package testservers gives tests real SQL and Redis servers.
//
// SharedSQL and SharedRedis are one server each for a whole test process; a test takes a database or a key
// prefix of its own on them. NewSQL, NewRedis, NewRedisReplica and NewRedisCluster start servers that one
// test may kill, pause and restart as it likes. A package that uses any of them ends its TestMain with
//
//	os.Exit(testservers.Main(m))
//
// # Where a server comes from
//
// The first of these ways that works, for SQL and Redis separately:
//
//  1. dsn: MYSQL_DSN and REDIS_ADDR name running servers. They serve as the shared ones only: nobody kills
//     a server that belongs to somebody else.
//  2. docker: a Docker engine runs COMPENSATOR_MYSQL_IMAGE and COMPENSATOR_REDIS_IMAGE through
//     testcontainers-go, which lives in a nested module.
//  3. local: mariadbd or mysqld, and redis-server, run as throw-away processes. COMPENSATOR_MYSQLD names the
//     mysqld to use, and then Docker is not asked for SQL.
//  4. install: as root on Debian, apt-get installs what is missing for 3.
//
// COMPENSATOR_SERVERS=dsn, docker, local or install allows that way alone. A test that can have no server
// fails; it is never skipped.
//
// Everything may be called from parallel tests, and test processes may run side by side. On Linux no local
// server outlives the test process, however that ends.
package testservers

import "sync"

// shared holds the servers that live as long as the test process.
var shared struct {
	mu    sync.Mutex // guards the fields; held while a server starts
	sql   *SQLServer
	redis *RedisServer
}

// Main runs the tests, stops the shared servers, removes this process's files and returns the exit code.
// Whoever looks for leaked goroutines does it afterwards.
func Main(m interface{ Run() int }) int {
	defer stopShared()
	return m.Run()
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.sql != nil {
		shared.sql.machine.discard()
		shared.sql = nil
	}
	if shared.redis != nil {
		shared.redis.machine.discard()
		shared.redis = nil
	}
	removeRunDir()
}
