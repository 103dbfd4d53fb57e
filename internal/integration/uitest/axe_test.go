package uitest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests download axe-core, and no release contains it.
const (
	axeURL  = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
	axeHash = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==" // SHA-512 in base64
)

var axeOnce = sync.OnceValues(fetchAxe)

func axe(t *testing.T) string {
	t.Helper()
	script, err := axeOnce()
	require.NoError(t, err)
	return script
}

func fetchAxe() (string, error) {
	kept := filepath.Join("..", "..", "..", "build", "axe-core-4.14.1.tgz")
	archive, err := os.ReadFile(kept)
	if err != nil {
		if archive, err = download(axeURL); err != nil {
			return "", err
		}
	}
	sum := sha512.Sum512(archive)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != axeHash {
		return "", fmt.Errorf("%s is not what it was: sha512-%s", axeURL, got)
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(kept, archive, 0o644); err != nil {
		return "", err
	}
	return unpack(archive, "package/axe.min.js")
}

func download(url string) ([]byte, error) {
	client := &http.Client{Timeout: time.Minute}
	answer, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, 8<<20))
}

func unpack(archive []byte, name string) (string, error) {
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", err
	}
	for files := tar.NewReader(plain); ; {
		file, err := files.Next()
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if file.Name == name {
			text, err := io.ReadAll(files)
			return string(text), err
		}
	}
}
