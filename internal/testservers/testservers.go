// Package testservers gives tests real SQL, Redis and RabbitMQ servers.
//
// SharedSQL, SharedRedis and SharedRabbitMQ are one server each for a whole test process. A test uses its own database,
// key prefix or names on them. NewSQL, NewRedis, NewRedisReplica, NewRedisCluster and NewRabbitMQ start servers for one
// test, which may kill, pause and restart them. A package that uses any of them ends its TestMain with
//
//	os.Exit(testservers.Main(m))
//
// # Where a server comes from
//
// For each kind of server, the first of these ways that works is used:
//
//  1. dsn: MYSQL_DSN, REDIS_ADDR and AMQP_URL name running servers. They serve only as shared servers, because tests
//     must not kill a server that they did not start.
//  2. docker: a Docker engine runs COMPENSATOR_MYSQL_IMAGE, COMPENSATOR_REDIS_IMAGE and COMPENSATOR_RABBITMQ_IMAGE
//     through testcontainers-go, which is in a nested module.
//  3. local: mariadbd or mysqld, redis-server and rabbitmq-server run as throw-away processes. COMPENSATOR_MYSQLD
//     names the mysqld to use. If it is set, Docker is not used for SQL.
//  4. install: as root on Debian, apt-get installs the programs that are missing for local.
//
// COMPENSATOR_SERVERS=dsn, docker, local or install allows only that way. A test that cannot get a server fails. It is
// never skipped.
//
// All functions may be called from parallel tests, and several test processes may run at the same time. On Linux, no
// local server outlives the test process, even if that is killed.
package testservers

import "sync"

// sharedServers holds the servers that live as long as the test process.
var sharedServers struct {
	mu     sync.Mutex // guards the fields; held while a server starts
	sql    *SQLServer
	redis  *RedisServer
	rabbit *RabbitMQServer
}

// Main runs the tests, stops the shared servers, removes this process's files and returns the exit code. A check for
// leaked goroutines must come after Main.
func Main(m interface{ Run() int }) int {
	defer stopShared()
	return m.Run()
}

func stopShared() {
	sharedServers.mu.Lock()
	defer sharedServers.mu.Unlock()
	if sharedServers.sql != nil {
		sharedServers.sql.machine.discard()
		sharedServers.sql = nil
	}
	if sharedServers.redis != nil {
		sharedServers.redis.machine.discard()
		sharedServers.redis = nil
	}
	if sharedServers.rabbit != nil {
		sharedServers.rabbit.machine.discard()
		sharedServers.rabbit = nil
	}
	removeRunDir()
}
