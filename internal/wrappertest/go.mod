module github.com/compensator-go/compensator/internal/wrappertest

go 1.25

replace github.com/compensator-go/compensator => ../..

require (
	github.com/XSAM/otelsql v0.35.0
	github.com/compensator-go/compensator v0.0.0
	github.com/go-sql-driver/mysql v1.8.1
	github.com/ngrok/sqlmw v0.0.0-20220520173518-97c9c04efc79
	github.com/stretchr/testify v1.10.0
	go.opentelemetry.io/otel v1.31.0
	go.opentelemetry.io/otel/trace v1.31.0
)

require (
	filippo.io/edwards25519 v1.1.0 // indirect
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-logr/logr v1.4.2 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/redis/go-redis/v9 v9.7.3 // indirect
	go.opentelemetry.io/otel/metric v1.31.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
