package wrappertest

import (
	"database/sql"
	"database/sql/driver"

	"github.com/XSAM/otelsql"
	"github.com/go-sql-driver/mysql"

	"github.com/compensator-go/compensator"
)

// openTraced is the code of docs/how-to/size.md.
func openTraced(dsn string) (*sql.DB, error) {
	traced, err := otelsql.WrapDriver(mysql.MySQLDriver{}).(driver.DriverContext).OpenConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(compensator.Connector(traced))
	return db, nil
}
