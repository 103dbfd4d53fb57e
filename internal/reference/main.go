// Reference writes pages of docs/reference from the sources: settings, errors, columns and metrics. It also draws the charts of
// the page about performance, and copies code of compiled files into the pages that include it. Run it in the root of the
// repository: go run ./internal/reference. A test fails while a page is not current.
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

// generate returns the text of each file by its name. root is the root of the repository.
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
	if err := addMetrics(root, files); err != nil {
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

// addMetrics writes the table of metrics into the page about telemetry.
func addMetrics(root string, files map[string]string) error {
	const name, begin, end = "docs/reference/telemetry.md", "<!-- metrics: go run ./internal/reference -->\n\n", "\n<!-- end of metrics -->"
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	table, err := metricsTable(root)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s has no place for the table of metrics", name)
	}
	files[name] = before + begin + table + end + after
	return nil
}

// addSamples adds the pages that include code, unless they are generated.
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
