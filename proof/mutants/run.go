package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func run(ctx context.Context, t *tree, l layer, what string, edits []edit) (verdict, error) {
	o, err := newOverlay(t, append(l.settings(), edits...))
	if err != nil {
		return verdict{}, err
	}
	defer o.remove()
	commands, err := l.commands(t, what)
	if err != nil {
		return verdict{}, err
	}
	began := time.Now()
	var all verdict
	for _, c := range commands {
		v, err := runCommand(ctx, filepath.Join(t.root, c.dir), append([]string{"-overlay=" + o.path}, c.args...))
		if err != nil {
			return verdict{}, err
		}
		all = all.join(v)
	}
	all.took = time.Since(began)
	return all, nil
}

func runCommand(ctx context.Context, dir string, args []string) (verdict, error) {
	flags := []string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w"} // -s -w saves most of the time of a build, which is linking.
	cmd := exec.CommandContext(ctx, "go", append(flags, args...)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // With an interrupt, the tests also stop their servers.
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return verdict{}, ctx.Err()
	}
	v := judge(stdout.Bytes(), err == nil)
	if said := bytes.TrimSpace(stderr.Bytes()); v.kind == broken && len(said) > 0 {
		v.why += ": " + lastLines(string(said))
	}
	return v, nil
}
