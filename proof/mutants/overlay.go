package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// overlay is the file that makes the go command read changed files in the place of those of the tree.
type overlay struct {
	dir  string // temporary; holds the changed files
	path string
}

// newOverlay applies edits to the files below root and leaves them as they are. Edits of one file add up.
func newOverlay(root string, edits []edit) (*overlay, error) {
	texts := make(map[string]string)
	for _, e := range edits {
		text, read := texts[e.file]
		if !read {
			content, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		changed, err := e.apply(text)
		if err != nil {
			return nil, err
		}
		texts[e.file] = changed
	}
	return writeOverlay(root, texts)
}

// apply returns text with the edit made.
func (e edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.old); n != 1 {
		return "", fmt.Errorf("%s: the text to replace stands there %d times, want once:\n%s", e.file, n, e.old)
	}
	return strings.Replace(text, e.old, e.new, 1), nil
}

func writeOverlay(root string, texts map[string]string) (*overlay, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return nil, err
	}
	o := &overlay{dir: dir, path: filepath.Join(dir, "overlay.json")}
	replace := make(map[string]string, len(texts))
	for file, text := range texts {
		changed := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		replace[filepath.Join(root, file)] = changed
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			o.remove()
			return nil, err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(o.path, list, 0o600)
	}
	if err != nil {
		o.remove()
		return nil, err
	}
	return o, nil
}

func (o *overlay) remove() { _ = os.RemoveAll(o.dir) }
