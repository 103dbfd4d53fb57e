// Package schema is what the ent client is generated from.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/schema/field"
)

// Order is a business row.
type Order struct{ ent.Schema }

// Fields implements ent.Interface.
func (Order) Fields() []ent.Field { return []ent.Field{field.String("note")} }
