// Command discovery writes the resources that each supported Kubernetes version serves,
// and the schemas of their kinds, from the sources of Kubernetes, to
// internal/kubernetes.
//
//	go run ./hack/discovery internal/kubernetes
package main

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/policy"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: discovery DIRECTORY")
		os.Exit(2)
	}
	for e := policy.OldestEngine; e <= policy.LatestEngine; e++ {
		if err := write(e, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "discovery:", err)
			os.Exit(1)
		}
	}
}

func write(e policy.Engine, directory string) error {
	version, err := release(e)
	if err != nil {
		return err
	}
	archive, err := download(version)
	if err != nil {
		return err
	}
	lists, err := resources(archive)
	if err != nil {
		return fmt.Errorf("reading Kubernetes %s: %w", version, err)
	}
	packed, err := pack(lists)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, fmt.Sprintf("resources-%s.json.gz", e)), packed, 0o644); err != nil {
		return err
	}
	if packed, err = schemas(archive); err != nil {
		return fmt.Errorf("reading the schemas of Kubernetes %s: %w", version, err)
	}
	return os.WriteFile(filepath.Join(directory, fmt.Sprintf("schemas-%s.zip", e)), packed, 0o644)
}

var required = regexp.MustCompile(`k8s.io/kubernetes (v1\.\S+)`)

// release returns the patch release of a version that the tests use.
func release(e policy.Engine) (string, error) {
	for _, name := range []string{e.String() + ".mod", "go.mod"} {
		text, err := os.ReadFile(filepath.Join("hack/kubernetes", name))
		if err != nil {
			continue
		}
		if found := required.FindSubmatch(text); len(found) == 2 && strings.HasPrefix(string(found[1]), "v"+e.String()+".") {
			return string(found[1]), nil
		}
	}
	return "", fmt.Errorf("hack/kubernetes has no release of Kubernetes %s", e)
}

// download returns the path of the archive of the module in Go's cache.
func download(version string) (string, error) {
	command := exec.CommandContext(context.Background(), "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("downloading Kubernetes %s: %w", version, err)
	}
	var module struct{ Zip string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", fmt.Errorf("downloading Kubernetes %s: %w", version, err)
	}
	return module.Zip, nil
}

// resources returns the resources by group version. Kubernetes generates these files from
// an API server with all APIs.
func resources(archive string) (map[string][]metav1.APIResource, error) {
	files, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	lists := map[string][]metav1.APIResource{}
	for _, f := range files.File {
		if !strings.HasSuffix(path.Dir(f.Name), "/api/discovery") || path.Base(f.Name) == "aggregated_v2.json" {
			continue
		}
		var list metav1.APIResourceList
		if err := decode(f, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if list.Kind == "APIResourceList" {
			lists[list.GroupVersion] = list.APIResources
		}
	}
	if len(lists["v1"]) == 0 {
		return nil, fmt.Errorf("it has no resources in v1")
	}
	return lists, nil
}

func decode(f *zip.File, into any) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// pack returns the same bytes for the same lists.
func pack(lists map[string][]metav1.APIResource) ([]byte, error) {
	text, err := json.Marshal(lists)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
