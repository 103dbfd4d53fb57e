package main

import (
	"slices"
	"testing"
)

func TestFlagsReachTheServerWhateverTheImagesCommand(t *testing.T) {
	flags := []string{"--save", "", "--name=it's"}
	for name, c := range map[string]struct{ command, want []string }{
		"the server":    {[]string{"redis-server"}, []string{"redis-server", "--save", "", "--name=it's"}},
		"a shell":       {[]string{"/bin/sh", "-c", "exec redis-server"}, []string{"/bin/sh", "-c", `exec redis-server '--save' '' '--name=it'\''s'`}},
		"an entrypoint": {nil, flags},
	} {
		if got := withFlags(c.command, flags); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range [][]string{nil, {"mysql"}, {"mysql", "port"}, {"postgres", "5432"}} {
		if s, err := newServer(args); err == nil {
			t.Errorf("newServer(%q): got %v, want an error", args, s)
		}
	}
}
