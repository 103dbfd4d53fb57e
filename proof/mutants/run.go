package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// run runs what is selected of a layer, with edits made, and tells how it went.
func run(ctx context.Context, root string, l layer, what string, edits []edit) (verdict, error) {
	o, err := newOverlay(root, append(l.settings(), edits...))
	if err != nil {
		return verdict{}, err
	}
	defer o.remove()
	flags := []string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-overlay=" + o.path} // linking is most of a build
	cmd := exec.CommandContext(ctx, "go", append(flags, l.args(what)...)...)
	cmd.Dir = filepath.Join(root, l.dir())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that servers are stopped, too
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err = cmd.Run()
	if ctx.Err() != nil {
		return verdict{}, ctx.Err()
	}
	v := judge(stdout.Bytes(), err == nil)
	if said := bytes.TrimSpace(stderr.Bytes()); v.kind == broken && len(said) > 0 {
		v.why += ": " + lastLines(string(said))
	}
	v.took = time.Since(began)
	return v, nil
}
