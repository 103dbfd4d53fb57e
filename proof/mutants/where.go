package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// testPackages are the packages of each of the module's tests, as go test wants them.
var testPackages = sync.OnceValue(func() map[string][]string {
	root, err := moduleRoot()
	if err != nil {
		panic(err)
	}
	return testsOf(root)
})

// testsOf are the tests of the module in a directory, without those of modules below it.
func testsOf(root string) map[string][]string {
	packages := make(map[string][]string)
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w \*testing\.[TF]\)`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (isModule(path) || slices.Contains([]string{"testdata", "build", ".git"}, entry.Name())):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		for _, match := range declaration.FindAllStringSubmatch(string(text), -1) {
			packages[match[1]] = append(packages[match[1]], "./"+filepath.ToSlash(dir))
		}
		return err
	})
	if err != nil {
		panic(err)
	}
	return packages
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// packagesOf are those that have the named tests and subtests.
func packagesOf(names string) []string {
	var dirs []string
	for name := range strings.SplitSeq(names, "|") {
		test, _, _ := strings.Cut(name, "/")
		dirs = append(dirs, testPackages()[test]...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
