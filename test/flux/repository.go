package flux

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Repository serves the files of a Git repository on loopback, as Flux's source-controller does: each revision as an archive.
type Repository struct {
	server *httptest.Server

	mu       sync.Mutex
	archives map[string][]byte // by path
}

// ServeRepository starts a server without a revision.
func ServeRepository() *Repository {
	r := &Repository{archives: map[string][]byte{}}
	r.server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// Close stops the server.
func (r *Repository) Close() { r.server.Close() }

func (r *Repository) serve(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	archive := r.archives[request.URL.Path]
	r.mu.Unlock()
	if archive == nil {
		http.NotFound(w, request)
		return
	}
	_, _ = w.Write(archive) // the client reports an incomplete archive
}

// Commit adds a revision with files by path, and returns it as status.artifact of a GitRepository.
func (r *Repository) Commit(files map[string]string) (map[string]any, error) {
	archive, err := archiveOf(files)
	if err != nil {
		return nil, err
	}
	digest := fmt.Sprintf("%x", sha256.Sum256(archive))
	path := "/" + digest + ".tar.gz"
	r.mu.Lock()
	r.archives[path] = archive
	r.mu.Unlock()
	return map[string]any{
		"digest": "sha256:" + digest, "lastUpdateTime": "2026-06-01T12:00:00Z", "path": strings.TrimPrefix(path, "/"),
		"revision": "main@sha1:" + digest[:40], "url": r.server.URL + path,
	}, nil
}

func archiveOf(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name]))}); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
		if _, err := archive.Write([]byte(files[name])); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("ending the archive: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compressing the archive: %w", err)
	}
	return out.Bytes(), nil
}
