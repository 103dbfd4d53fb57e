package main

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

type overlay struct {
	dir  string
	path string
}

func newOverlay(t *tree, edits []edit) (*overlay, error) {
	texts, err := t.changed(edits)
	if err != nil {
		return nil, err
	}
	return writeOverlay(t.root, texts)
}

func (t *tree) changed(edits []edit) (map[string]string, error) {
	texts := make(map[string]string)
	for _, e := range edits {
		file, text, err := t.apply(e, texts)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.in, err)
		}
		texts[file] = text
	}
	return texts, nil
}

func (t *tree) apply(e edit, before map[string]string) (file, text string, err error) {
	if e.isText() {
		return t.applyToText(e, before)
	}
	d, err := t.declared(e.in)
	if err != nil {
		return "", "", err
	}
	if changed, again := before[d.file]; again {
		if d, err = d.findIn(changed, e.in); err != nil {
			return "", "", err
		}
	}
	c, err := newCode(d.tokens, d.source, d.node)
	if err != nil {
		return "", "", err
	}
	text, err = c.replace(e.from, e.to)
	return d.file, text, err
}

func (d declaration) findIn(source, name string) (declaration, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, d.file, source, parser.SkipObjectResolution)
	if err != nil {
		return declaration{}, err
	}
	t := tree{byName: make(map[string][]declaration)}
	t.add(files, parsed, d.file, source)
	return t.declared(name)
}

func (t *tree) applyToText(e edit, before map[string]string) (file, text string, err error) {
	file, err = t.text(e.in)
	if err != nil {
		return "", "", err
	}
	text, again := before[file]
	if !again {
		content, err := os.ReadFile(filepath.Join(t.root, file))
		if err != nil {
			return "", "", err
		}
		text = string(content)
	}
	words := strings.Fields(e.from)
	for i, w := range words {
		words[i] = regexp.QuoteMeta(w)
	}
	found := regexp.MustCompile(strings.Join(words, `\s+`)).FindAllStringIndex(text, -1)
	if len(found) != 1 || len(words) == 0 {
		return "", "", fmt.Errorf("the text occurs %d times, want once:\n%s", len(found), e.from)
	}
	return file, text[:found[0][0]] + e.to + text[found[0][1]:], nil
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
