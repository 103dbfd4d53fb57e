module github.com/compensator-go/compensator/ui

go 1.25

require github.com/compensator-go/compensator v0.1.0

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-sql-driver/mysql v1.8.1 // indirect
	github.com/redis/go-redis/v9 v9.7.3 // indirect
)
