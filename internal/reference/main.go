// Reference writes pages of docs/reference from the sources: settings, errors and columns. Run it in the root of the
// repository: go run ./internal/reference. A test fails while a page is not current.
package main

import (
	"log"
	"os"
	"path/filepath"
)

func main() {
	pages, err := generate(".")
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join("docs/reference", name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the text of each page by its file name in docs/reference. root is the root of the repository.
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
	return map[string]string{"settings.md": settings, "errors.md": errorsFound, "tables.md": columns}, nil
}
