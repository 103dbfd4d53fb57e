package otel

import (
	"runtime/debug"
	"strings"
)

// version returns "" if the program was built without a version, for example from a working tree.
func version(info *debug.BuildInfo, known bool) string {
	if !known {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scope && m.Replace == nil {
			return strings.TrimPrefix(m.Version, "(devel)")
		}
	}
	return ""
}
