// Program mutants breaks the library on purpose, one known bug at a time. It requires that the tests named for a bug
// fail. Run it in the module's root.
//
//	go run ./proof/mutants -list
//	go run ./proof/mutants -name settle-without-fence
//	go run ./proof/mutants -all -layer unit -baseline
//
// A mutant is a list of edits. An edit names a declaration: a function, Type.method, or a type, constant or variable.
// The name may begin with the package's name.
//
// Inside the declaration, the edit replaces one pattern of Go tokens, which must occur exactly once. In a pattern, $row
// matches one identifier or expression, and $$rest matches any run of tokens. The replacement may use these names.
//
// The go command gets the changed files as an overlay. So the library has no switches for bugs, and the tree does not
// change.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := work(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context) error {
	list := flag.Bool("list", false, "list the mutants and the tests that see them")
	names := flag.String("name", "", "mutants to run, separated by commas")
	all := flag.Bool("all", false, "run all mutants")
	only := flag.String("layer", "", "layers to run, separated by commas; default: all layers that claim to see the mutant")
	baseline := flag.Bool("baseline", false, "first run the same tests without a mutant; they must pass")
	flag.Parse()
	wanted, err := choose(catalogue(), *names)
	if err != nil {
		return err
	}
	if *list {
		printList(os.Stdout, wanted)
		return nil
	}
	if *names == "" && !*all {
		return errors.New("want -list, -name or -all")
	}
	t, err := theTree()
	if err != nil {
		return err
	}
	chosen, err := chooseLayers(*only)
	if err != nil {
		return err
	}
	h := hunt{tree: t, mutants: wanted, layers: chosen, out: os.Stdout}
	if *baseline {
		if err := h.baseline(ctx); err != nil {
			return err
		}
	}
	return h.runAll(ctx)
}

func choose(all []mutant, names string) ([]mutant, error) {
	if names == "" {
		return all, nil
	}
	var chosen []mutant
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(m mutant) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no mutant %q; see -list", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func chooseLayers(only string) ([]layer, error) {
	if only == "" {
		return layers, nil
	}
	var chosen []layer
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(layers, layer(name)) {
			return nil, fmt.Errorf("there is no layer %q; want some of %v", name, layers)
		}
		chosen = append(chosen, layer(name))
	}
	return chosen, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		gomod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if strings.HasPrefix(string(gomod), "module github.com/compensator-go/compensator\n") {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
	return "", errors.Join(err, errors.New("not inside the module: run this program in the repository"))
}
