module github.com/compensator-go/compensator/internal/migratetest

go 1.25

require (
	github.com/compensator-go/compensator v0.0.0
	github.com/golang-migrate/migrate/v4 v4.19.1
	github.com/pressly/goose/v3 v3.26.0
	github.com/go-sql-driver/mysql v1.8.1
	github.com/stretchr/testify v1.10.0
)

replace github.com/compensator-go/compensator => ../..
