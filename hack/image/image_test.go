package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Two builds of equal sources, in different folders, give equal bytes; any other
// input gives others.
func TestEqualInputGivesEqualBytes(t *testing.T) {
	arguments := []string{"-version=v1.2.3", "-revision=abc", "-created=1700000000"}
	first := makeImage(t, newSource(t, ""), arguments...)
	tests := map[string]struct {
		source    string
		arguments []string
		wantSame  bool
	}{
		"the same source elsewhere": {arguments: arguments, wantSame: true},
		"another source":            {source: "// changed\nvar Changed = 1\n", arguments: arguments},
		"another version":           {arguments: []string{"-version=v1.2.4", "-revision=abc", "-created=1700000000"}},
		"another revision":          {arguments: []string{"-version=v1.2.3", "-revision=abd", "-created=1700000000"}},
		"another time":              {arguments: []string{"-version=v1.2.3", "-revision=abc", "-created=1700000001"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := makeImage(t, newSource(t, tt.source), tt.arguments...)
			if same := got.printed == first.printed; same != tt.wantSame {
				t.Errorf("the same digest: %v, want %v\n%s%s", same, tt.wantSame, first.printed, got.printed)
			}
			if same := bytes.Equal(read(t, got.tar), read(t, first.tar)); same != tt.wantSame {
				t.Errorf("the same tar: %v, want %v", same, tt.wantSame)
			}
		})
	}
}

func TestImage(t *testing.T) {
	made := makeImage(t, newSource(t, ""), "-version=v1.2.3", "-revision=abc", "-created=1700000000", "-name=example.com/x/small:v1")
	index := unpack(t, made.tar)
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index %+v, %v: want one image", manifest, err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "example.com/x/small:v1" {
		t.Errorf("the image is named %q", got)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("runs as nobody, with labels", func(t *testing.T) { testConfig(t, image) })
	files := content(t, image)
	t.Run("holds these files and no others", func(t *testing.T) {
		want := []string{"LICENSE", "etc/", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt", "sbom.spdx.json", "small"}
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
	})
	t.Run("the program is static", func(t *testing.T) { testStatic(t, files["small"]) })
	t.Run("authorities are many", func(t *testing.T) {
		if n := bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")); n < 100 {
			t.Errorf("%d certificates, want more than a hundred", n)
		}
		if block, _ := pem.Decode(files["etc/ssl/certs/ca-certificates.crt"]); block == nil {
			t.Error("no PEM")
		}
	})
	t.Run("says what it was built from", func(t *testing.T) {
		testSBOM(t, files["small"], files["sbom.spdx.json"])
		if beside := read(t, strings.TrimSuffix(made.tar, ".tar")+".spdx.json"); !bytes.Equal(beside, files["sbom.spdx.json"]) {
			t.Error("the bill of materials beside the image is another than that in it")
		}
	})
}

func testConfig(t *testing.T, image v1.Image) {
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/small"}) {
		t.Errorf("runs %q as %q", config.Config.Entrypoint, config.Config.User)
	}
	if config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("is for %s/%s", config.OS, config.Architecture)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"version": "v1.2.3", "revision": "abc", "created": "2023-11-14T22:13:20Z", "licenses": "Apache-2.0",
		"source": "https://github.com/ostiary/ostiary", "title": "small",
	}
	for key, value := range want {
		key = "org.opencontainers.image." + key
		if config.Config.Labels[key] != value || manifest.Annotations[key] != value {
			t.Errorf("label %s is %q, annotation %q, want %q", key, config.Config.Labels[key], manifest.Annotations[key], value)
		}
	}
}

func testStatic(t *testing.T, program []byte) {
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("the program wants an interpreter, which the image has not got")
		}
	}
}

func testSBOM(t *testing.T, program, bill []byte) {
	var d document
	if err := json.Unmarshal(bill, &d); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, m := range d.Packages {
		names[m.Name] = m.Version
	}
	if names["example.com/small"] != "v1.2.3" || names["stdlib"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("packages %v, want the program and the standard library", names)
	}
	if got, want := d.Packages[0].Checksums[0].Value, fmt.Sprintf("%x", sha256.Sum256(program)); got != want {
		t.Errorf("sum %s, want that of the program %s", got, want)
	}
	if len(d.Relationships) != len(d.Packages) {
		t.Errorf("%d relationships for %d packages", len(d.Relationships), len(d.Packages))
	}
}

func TestSeveralPlatforms(t *testing.T) {
	made := makeImage(t, newSource(t, ""), "-platforms=linux/amd64,linux/arm64")
	manifest, err := unpack(t, made.tar).IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := unpack(t, made.tar).ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if manifest, err = index.IndexManifest(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Platform.String())
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(got, want) {
		t.Errorf("platforms %q, want %q", got, want)
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		arguments []string
		wantErr   string
	}{
		"an unknown flag":    {arguments: []string{"-x"}, wantErr: "flag provided but not defined: -x: see -help"},
		"an argument":        {arguments: []string{"x"}, wantErr: `unexpected argument "x"`},
		"a name that is bad": {arguments: []string{"-name=A B"}, wantErr: `-name "A B": `},
		"a platform":         {arguments: []string{"-platforms=linux"}, wantErr: `-platforms "linux": "linux" is not OS/ARCHITECTURE`},
		"a path":             {arguments: []string{"-program=bin/x"}, wantErr: `-program "bin/x": use the name of a file`},
		"no such package":    {arguments: []string{"-source=" + newSource(t, ""), "-package=./nothing", "-out=" + filepath.Join(t.TempDir(), "x.tar")}, wantErr: "go build of ./nothing for linux/"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.arguments, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// newSource is a module with a program that takes no time to build.
func newSource(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/small\n\ngo 1.26.0\n",
		"main.go": "package main\n\nvar version = \"\"\n\nfunc main() { println(version) }\n\n" + more,
		"LICENSE": "as you like\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

type made struct {
	tar     string
	printed string // the name and the digest
}

func makeImage(t *testing.T, source string, arguments ...string) made {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	var printed bytes.Buffer
	if err := run(t.Context(), append([]string{"-source=" + source, "-program=small", "-out=" + out}, arguments...), &printed); err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(printed.String(), "\n")
	if !strings.Contains(line, "@sha256:") {
		t.Fatalf("printed %q, want a digest", printed.String())
	}
	return made{tar: out, printed: line}
}

func unpack(t *testing.T, archive string) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, content := range tarContent(t, bytes.NewReader(read(t, archive))) {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			continue
		}
		if err := writeFile(path, content); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// content is that of all layers.
func content(t *testing.T, image v1.Image) map[string][]byte {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, layer := range layers {
		open, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(all, tarContent(t, open))
	}
	return all
}

func tarContent(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o, want root, and no other user writes", header.Name, header.Uid, header.Gid, header.Mode)
		}
		if files[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
