package orms

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/compensator-go/compensator"
	"github.com/compensator-go/compensator/orms/gormtx"
)

type gormOrder struct {
	ID   int64
	Note string
}

func (gormOrder) TableName() string { return "orders" }

func openGORM(t *testing.T, db *sql.DB, prepare bool) orm {
	dialector := mysql.New(mysql.Config{Conn: db})
	if isSQLite(db) {
		dialector = sqlite.New(sqlite.Config{Conn: db})
	}
	g, err := gorm.Open(dialector, &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	require.NoError(t, err)
	return orm{
		inTx: func(ctx context.Context, note string, work func(compensator.Tx) error) error {
			return g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				if err := tx.Create(&gormOrder{Note: note}).Error; err != nil {
					return err
				}
				return work(tx.Statement.ConnPool)
			})
		},
		nest: func(ctx context.Context, outer, inner func(compensator.Tx) error) error {
			return g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
				nested := tx.Transaction(func(tx *gorm.DB) error { return errors.Join(inner(tx.Statement.ConnPool), errRollback) })
				require.Equal(t, errors.Join(errRollback), nested)
				return outer(tx.Statement.ConnPool)
			})
		},
		write: func(ctx context.Context, tx *compensator.ScopedTx, note string) error {
			return gormtx.Use(ctx, g, tx).CreateInBatches([]gormOrder{{Note: note}, {Note: "beside " + note}}, 1).Error
		},
		outside: g.Statement.ConnPool,
	}
}
