package main

import (
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
)

func TestDSNSettingsAreThoseOfTheDriver(t *testing.T) {
	for _, setting := range dsnSettings {
		for _, name := range setting.names {
			ofDriver := slices.ContainsFunc([]string{"true", "30s", "utf8mb4", "1024", "UTC"}, func(value string) bool {
				cfg, err := mysql.ParseDSN("app@tcp(db)/shop?" + name + "=" + value)
				return err == nil && cfg.Params[name] == ""
			})
			// Do not check charset, because older versions of the driver list it among the parameters of the session.
			if name != "charset" {
				assert.Equal(t, !setting.session, ofDriver, name)
			}
		}
	}
}
