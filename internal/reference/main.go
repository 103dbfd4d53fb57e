// Reference writes pages of docs/reference from the sources: settings, errors, columns, metrics, DSN parameters and
// refused server settings. It writes the tables of docs/internals/failures.md from the comments of tests. Run it in the
// root of the repository: go run ./internal/reference. A test fails while a page is not current.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	pages, err := generate(".")
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range pages {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func generate(root string) (map[string]string, error) {
	settings, err := settingsPage(root)
	if err != nil {
		return nil, err
	}
	errorsFound, err := errorsPage(root)
	if err != nil {
		return nil, err
	}
	columns, err := tablesPage(root)
	if err != nil {
		return nil, err
	}
	files := map[string]string{"docs/reference/settings.md": settings, "docs/reference/errors.md": errorsFound, "docs/reference/tables.md": columns}
	if err := addParts(root, files); err != nil {
		return nil, err
	}
	drawn, err := charts(root)
	if err != nil {
		return nil, err
	}
	for name, text := range drawn {
		files["docs/images/"+name] = text
	}
	return files, addSamples(root, files)
}

var parts = []struct {
	page, name string
	make       func(root string) (string, error)
}{
	{"docs/reference/telemetry.md", "metrics", metricsTable},
	{"docs/reference/servers.md", "settings of a DSN", dsnTable},
	{"docs/reference/servers.md", "refusals", refusalTables},
	{"docs/internals/failures.md", "failures", failureTables},
}

func addParts(root string, files map[string]string) error {
	for _, p := range parts {
		begin, end := "<!-- "+p.name+": go run ./internal/reference -->\n\n", "\n<!-- end of "+p.name+" -->"
		text, known := files[p.page]
		if !known {
			read, err := os.ReadFile(filepath.Join(root, p.page))
			if err != nil {
				return err
			}
			text = string(read)
		}
		made, err := p.make(root)
		if err != nil {
			return err
		}
		before, rest, found := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return fmt.Errorf("%s has no place for its %s", p.page, p.name)
		}
		files[p.page] = before + begin + made + end + after
	}
	return nil
}

func addSamples(root string, files map[string]string) error {
	pages, err := pagesWithSamples(root)
	if err != nil {
		return err
	}
	for _, name := range pages {
		if files[name] != "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		with, err := withSamples(root, string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if with != string(text) || sampleMark.MatchString(with) {
			files[name] = with
		}
	}
	return nil
}
