package oteltest

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

func named(set attribute.Set) string {
	var parts []string
	for _, kv := range set.ToSlice() {
		parts = append(parts, string(kv.Key)+"="+kv.Value.String())
	}
	return "{" + strings.Join(parts, ",") + "}"
}
