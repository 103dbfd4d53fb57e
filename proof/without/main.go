// Program "without" takes features out of the library, and shows that the rest of the library still works. The program
// takes out one feature after the other, and finally all of them.
//
//	go run ./proof/without
//	go run ./proof/without -name pause
//	go run ./proof/without -name limits,waiting -overlay build/without.json
//
// With -overlay, the program only writes an overlay for go build to this file. The overlay removes the features of
// -name.
//
// A feature is a package directly below internal/features, and the file with the same name in internal/features. Redis
// is a feature, too: the package internal/redisqueue and the file queue_redis.go.
//
// When the package of the feature, the tests of this package and the file are gone, these steps must succeed:
//
//   - go build builds the root module, and go vet accepts the root package with its tests.
//   - The tests of internal/engine pass.
//   - The test of package smoke passes: one entry succeeds, and another is compensated.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const below = "internal/features"

const (
	redis        = "redis"
	redisPackage = "internal/redisqueue"
	redisFile    = "queue_redis.go"
	withoutRedis = `package compensator

import (
	"github.com/redis/go-redis/v9"

	"github.com/compensator-go/compensator/processlog"
)

func openRedisQueue(redis.UniversalClient, string) (processlog.Queue, error) {
	return nil, &FieldError{Field: "Redis", Reason: "this build has no queue on Redis"}
}

func prefixProblem(string) string { return "" }
`
)

func main() {
	if err := work(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "without:", err)
		os.Exit(1)
	}
}

func work(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("without", flag.ContinueOnError)
	name := flags.String("name", "", "take out only these features, separated by commas")
	overlay := flags.String("overlay", "", "only write the overlay for the features of -name to this file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	features, err := list(root)
	if err != nil {
		return err
	}
	features = append(features, redis)
	if *name == "" {
		return takeOutEach(root, features, out)
	}
	names := strings.Split(*name, ",")
	for _, name := range names {
		if !slices.Contains(features, name) {
			return fmt.Errorf("no feature %q: the features are %s", name, strings.Join(features, ", "))
		}
	}
	if *overlay != "" {
		path, err := filepath.Abs(*overlay)
		if err != nil {
			return err
		}
		return hide(root, names, path)
	}
	return try(root, names, checks, out)
}

// takeOutEach continues after a failure, so that one run names every feature that other code needs.
func takeOutEach(root string, features []string, out io.Writer) error {
	var failed []error
	for _, name := range features {
		failed = append(failed, try(root, []string{name}, checks, out))
	}
	return errors.Join(append(failed, try(root, features, checks, out))...)
}

func list(root string) ([]string, error) {
	found, err := os.ReadDir(filepath.Join(root, below))
	if err != nil {
		return nil, err
	}
	packages, files := make(map[string]bool), make(map[string]bool)
	for _, f := range found {
		name, isGo := strings.CutSuffix(f.Name(), ".go")
		switch {
		case f.IsDir():
			packages[name] = true
		case isGo && name != filepath.Base(below) && !strings.HasSuffix(name, "_test"):
			files[name] = true
		}
	}
	var names []string
	for name := range packages {
		if !files[name] {
			return nil, fmt.Errorf("%s/%s has no file %s/%s.go that attaches it", below, name, below, name)
		}
		names = append(names, name)
	}
	for name := range files {
		if !packages[name] {
			return nil, fmt.Errorf("%s/%s.go has no package %s/%s", below, name, below, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

var checks = [][]string{
	{"build", "./..."},
	{"vet", "."},
	{"test", "-vet=off", "-ldflags=-w", "./internal/engine", "./proof/without/smoke"},
}

func try(root string, features []string, checks [][]string, out io.Writer) error {
	began, without := time.Now(), "without "+strings.Join(features, ", ")
	dir, err := os.MkdirTemp("", "without-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay := filepath.Join(dir, "overlay.json")
	if err := hide(root, features, overlay); err != nil {
		return err
	}
	for _, args := range checks {
		args = slices.Concat(args[:1], []string{"-overlay", overlay}, args[1:])
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		if said, err := cmd.CombinedOutput(); err != nil {
			_, _ = fmt.Fprintf(out, "%s: FAIL\n", without)
			return fmt.Errorf("%s: go %s: %w\n%s", without, strings.Join(args, " "), err, said)
		}
	}
	_, err = fmt.Fprintf(out, "%s: ok, %v\n", without, time.Since(began).Round(time.Second))
	return err
}

func hide(root string, features []string, overlay string) error {
	replace := make(map[string]string) // "": the file is missing
	for _, name := range features {
		at := filepath.Join(root, below, name)
		if name == redis {
			at = filepath.Join(root, redisPackage)
			file := overlay + "." + redisFile
			if err := os.WriteFile(file, []byte(withoutRedis), 0o600); err != nil {
				return err
			}
			replace[filepath.Join(root, redisFile)] = file
		} else {
			replace[at+".go"] = ""
		}
		if err := filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				replace[path] = ""
			}
			return err
		}); err != nil {
			return err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(overlay, text, 0o600)
}
