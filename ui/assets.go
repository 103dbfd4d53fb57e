package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
)

//go:embed assets pages text
var files embed.FS

// The URL of an asset changes with its content, so browsers may cache it indefinitely.
type asset struct {
	url, contentType string
	data, compressed []byte // content of the file, and the same content compressed
}

// The operating system may not know these types.
var kinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// loadAssets lists each file under two names: with and without the hash.
func loadAssets() (map[string]asset, error) {
	assets := make(map[string]asset)
	dirEntries, err := files.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, f := range dirEntries {
		data, err := files.ReadFile("assets/" + f.Name())
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(data)
		ext := path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), ext) + "-" + hex.EncodeToString(hash[:6]) + ext
		a := asset{url: "assets/" + name, contentType: kinds[ext], data: data, compressed: compress(data)}
		assets[name], assets[f.Name()] = a, a
	}
	return assets, nil
}

// hashMakings returns the same hash in all processes with the same program and options.
func hashMakings(options ...any) (string, error) {
	hash := sha256.New()
	if buildInfo, ok := debug.ReadBuildInfo(); ok {
		fmt.Fprintln(hash, buildInfo)
	}
	fmt.Fprintln(hash, options...)
	err := fs.WalkDir(files, ".", func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return err
		}
		data, err := files.ReadFile(path)
		fmt.Fprintf(hash, "%s %d %s", path, len(data), data)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil)), err
}

func (s *server) sendAsset(rq *request) {
	a, isFound := s.assets[rq.r.PathValue("name")]
	if !isFound || a.url != "assets/"+rq.r.PathValue("name") {
		rq.showError(http.StatusNotFound, "error.no_page")
		return
	}
	h := rq.w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	data := a.data
	if acceptsGzip(rq.r) {
		h.Set("Content-Encoding", "gzip")
		data = a.compressed
	}
	_, _ = rq.w.Write(data)
}
