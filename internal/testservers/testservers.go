// Package testservers gives tests real SQL, Redis and RabbitMQ servers.
//
// SharedSQL, SharedRedis and SharedRabbitMQ are one server each for a whole test process; a test takes a database, a
// key prefix or names of its own on them. NewSQL, NewRedis, NewRedisReplica, NewRedisCluster and NewRabbitMQ start
// servers that one test may kill, pause and restart as it likes. A package that uses any of them ends its TestMain with
//
//	os.Exit(testservers.Main(m))
//
// # Where a server comes from
//
// The first of these ways that works, for each kind separately:
//
//  1. dsn: MYSQL_DSN, REDIS_ADDR and AMQP_URL name running servers. They serve as the shared ones only: nobody
//     kills a server that belongs to somebody else.
//  2. docker: a Docker engine runs COMPENSATOR_MYSQL_IMAGE, COMPENSATOR_REDIS_IMAGE and
//     COMPENSATOR_RABBITMQ_IMAGE through testcontainers-go, which lives in a nested module.
//  3. local: mariadbd or mysqld, redis-server and rabbitmq-server run as throw-away processes. COMPENSATOR_MYSQLD
//     names the mysqld to use, and then Docker is not asked for SQL.
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
	mu     sync.Mutex // guards the fields; held while a server starts
	sql    *SQLServer
	redis  *RedisServer
	rabbit *RabbitMQServer
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
	if shared.rabbit != nil {
		shared.rabbit.machine.discard()
		shared.rabbit = nil
	}
	removeRunDir()
}
