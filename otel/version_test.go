package otel

import (
	"runtime/debug"
	"testing"
)

func TestScopeHasTheVersionOfTheModule(t *testing.T) {
	dep := func(version string, replace *debug.Module) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: "v7.0.0"},
			Deps: []*debug.Module{{Path: "github.com/compensator-go/compensator", Version: "v0.9.0"}, {Path: scope, Version: version, Replace: replace}}}
	}
	for _, of := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{dep("v0.3.1", nil), "v0.3.1"},
		{dep("v0.3.1", &debug.Module{Path: "../otel"}), ""},
		{dep("(devel)", nil), ""},
		{&debug.BuildInfo{Main: debug.Module{Path: scope, Version: "v0.4.0"}}, "v0.4.0"},
		{&debug.BuildInfo{Main: debug.Module{Path: "example.com/shop", Version: "v7.0.0"}}, ""},
	} {
		if got := version(of.info, true); got != of.want {
			t.Errorf("%v: %q, want %q", of.info, got, of.want)
		}
	}
	if got := version(nil, false); got != "" {
		t.Errorf("%q", got)
	}
}
