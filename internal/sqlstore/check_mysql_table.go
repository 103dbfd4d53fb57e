package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/compensator-go/compensator/processlog"
)

type mysqlColumn struct {
	dataType  string
	length    int64 // in characters or bytes; 0 for numbers
	collation string
}

type mysqlTable struct {
	engine  string
	isView  bool
	columns map[string]mysqlColumn
	indexes map[string]bool // "unique:col,col" or "name:col,col"
	side    sideTables
}

func readMySQLTable(ctx context.Context, s *Store) (mysqlTable, error) {
	t := mysqlTable{columns: make(map[string]mysqlColumn), indexes: make(map[string]bool)}
	schema := s.d.schema(s.table)
	err := s.db.QueryRowContext(ctx, "SELECT COALESCE(engine,''), table_type LIKE '%VIEW' FROM information_schema.tables WHERE table_schema="+schema+" AND table_name=?", s.table.base).Scan(&t.engine, &t.isView)
	if err == sql.ErrNoRows {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	sideRows, err := s.db.QueryContext(ctx, s.d.sideQuery(s.table))
	if err != nil {
		return t, err
	}
	if t.side, err = readSideTables(sideRows, s.table.base); err != nil {
		return t, err
	}
	rows, err := s.db.QueryContext(ctx, "SELECT column_name, LOWER(data_type), COALESCE(character_maximum_length,0), COALESCE(collation_name,'') FROM information_schema.columns WHERE table_schema="+schema+" AND table_name=?", s.table.base)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var c mysqlColumn
		if err := rows.Scan(&name, &c.dataType, &c.length, &c.collation); err != nil {
			return t, err
		}
		t.columns[strings.ToLower(name)] = c
	}
	if err := rows.Err(); err != nil {
		return t, err
	}
	err = t.readIndexes(ctx, s, schema)
	return t, err
}

func (t *mysqlTable) readIndexes(ctx context.Context, s *Store, schema string) error {
	rows, err := s.db.QueryContext(ctx, "SELECT LOWER(index_name), non_unique, COALESCE(LOWER(column_name),'') FROM information_schema.statistics WHERE table_schema="+schema+" AND table_name=? ORDER BY index_name, seq_in_index", s.table.base)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, unique := make(map[string][]string), make(map[string]bool)
	for rows.Next() {
		var nonUnique int
		var name, column string
		if err := rows.Scan(&name, &nonUnique, &column); err != nil {
			return err
		}
		columns[name], unique[name] = append(columns[name], column), nonUnique == 0
	}
	for name, of := range columns {
		of := strings.Join(of, ",")
		if t.indexes[name+":"+of] = true; unique[name] {
			t.indexes["unique:"+of] = true
		}
	}
	return rows.Err()
}

// wantColumns lists what each column must have at least: numbers by type, texts and bytes by length. The function init
// adds the columns of recordedTexts.
var wantColumns = map[string]mysqlColumn{
	"id": {dataType: "bigint"}, "next_at": {dataType: "bigint"}, "lease_until": {dataType: "bigint"}, "version": {dataType: "bigint"},
	"delay_second":  {dataType: "bigint"},
	"idempotent_id": {length: processlog.MaxIdempotencyKey, collation: "bin"}, "business_type": {length: processlog.MaxName, collation: "bin"},
	"content": {length: 1<<24 - 1}, "headers": {length: processlog.MaxHeaders}, "token": {length: 16}, "last_error": {length: processlog.MaxText, collation: "utf8mb4"}, "ended_by": {length: 16},
	"state": {}, "process_count": {}, "max_process_count": {}, "compensate_count": {}, "delivery_count": {}, "epoch": {}, "created_at": {}, "updated_at": {},
}

func init() {
	for _, column := range strings.Split(recordedTexts, ", ") {
		if _, listed := wantColumns[column]; !listed {
			wantColumns[column] = mysqlColumn{length: processlog.MaxName}
		}
	}
}

// wantIndexes lists the indexes that statements force by name.
var wantIndexes = map[string]string{
	"k_due": "state,business_type,next_at,id", "k_batch_id": "batch_id", "k_business_id": "business_id",
	"k_business_ext_id": "business_ext_id", "k_created_at": "created_at",
}

func (t mysqlTable) problems(name tableName) []error {
	if t.isView {
		return []error{viewNotTable(name)}
	}
	if t.engine == "" {
		return []error{&processlog.FieldError{Field: "table " + name.quoted(""), Reason: "does not exist; run Migrate or the files in migrations/mysql"}}
	}
	var problems []error
	refuse := func(problem, reason string) {
		problems = append(problems, &processlog.FieldError{Field: "table " + name.quoted("") + " " + problem, Reason: reason})
	}
	if foreign := foreignTable(name, func(column string) bool { return t.columns[column].dataType != "" }); foreign != nil {
		return []error{foreign}
	}
	if !strings.EqualFold(t.engine, "InnoDB") {
		refuse("engine", t.engine+": want InnoDB")
	}
	for column, expected := range wantColumns {
		if reason := t.columns[column].lacks(expected); reason != "" {
			refuse("column "+column, reason)
		}
	}
	if !t.indexes["unique:idempotent_id"] {
		refuse("index", "no UNIQUE index on idempotent_id: duplicates would be recorded twice")
	}
	for name, columns := range wantIndexes {
		if !t.indexes[name+":"+columns] {
			refuse("index "+name, "missing ("+columns+"): statements use it by name")
		}
	}
	for _, suffix := range requiredTables {
		if err := t.side.foreign(name)[suffix]; err != nil {
			problems = append(problems, err)
		}
	}
	for _, table := range t.side.missing(name) {
		problems = append(problems, &processlog.FieldError{Field: "table " + table, Reason: "does not exist; run Migrate or the files in migrations/mysql"})
	}
	return problems
}

func (c mysqlColumn) lacks(expected mysqlColumn) string {
	switch {
	case c.dataType == "":
		return "missing"
	case expected.dataType != "" && c.dataType != expected.dataType:
		return fmt.Sprintf("is %s, want %s", c.dataType, expected.dataType)
	case c.length < expected.length:
		return fmt.Sprintf("holds %d, want %d", c.length, expected.length)
	case expected.collation == "bin" && c.collation != "" && !strings.HasSuffix(c.collation, "_bin"):
		return fmt.Sprintf("collation %s takes different keys for equal; want utf8mb4_bin", c.collation)
	case expected.collation != "" && c.collation != "" && !strings.HasPrefix(c.collation, "utf8mb4_"):
		// settleRows compares a checksum of the stored bytes, so the column must store texts byte by byte.
		return fmt.Sprintf("collation %s does not store every text byte by byte; want utf8mb4_bin", c.collation)
	}
	return ""
}
