package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

const testRevision = "0123456789012345678901234567890123456789"

// newRelease makes a release of a small program, with the charts of the repository.
func newRelease(t *testing.T, arguments ...string) string {
	t.Helper()
	folder := newParts(t)
	arguments = append([]string{"release", "-folder=" + folder, "-charts=../../charts", "-version=v1.2.3", "-revision=" + testRevision, "-created=1700000000"}, arguments...)
	if err := run(t.Context(), arguments, io.Discard); err != nil {
		t.Fatal(err)
	}
	return folder
}

// newParts makes what a release is completed from.
func newParts(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	arguments := []string{
		"-source=" + newSource(t, ""), "-program=ostiary", "-out=" + filepath.Join(folder, imageFile), "-name=ghcr.io/ostiary/ostiary:v1.2.3",
		"-platforms=linux/amd64,linux/arm64", "-version=v1.2.3", "-revision=" + testRevision, "-created=1700000000",
	}
	if err := run(t.Context(), arguments, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, manifests := range []string{"install.yaml", "self-test.yaml", "uninstall.yaml"} {
		put(t, filepath.Join(folder, manifests), []byte("image: ghcr.io/ostiary/ostiary:dev\n"))
	}
	self, err := os.Executable() // a program with the list of its modules
	if err != nil {
		t.Fatal(err)
	}
	program := read(t, self)
	var zipped, inner bytes.Buffer
	compressed := gzip.NewWriter(&zipped)
	files := tar.NewWriter(compressed)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"LICENSE", nil}, {"kubectl-ostiary", program}} {
		if err := files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.name, Size: int64(len(file.content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(file.content); err != nil {
			t.Fatal(err)
		}
	}
	archive := zip.NewWriter(&inner)
	in, err := archive.Create("kubectl-ostiary.exe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(program); err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{files, compressed, archive} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(folder, "kubectl-ostiary_linux_arm64.tar.gz"), zipped.Bytes())
	put(t, filepath.Join(folder, "kubectl-ostiary_windows_amd64.zip"), inner.Bytes())
	return folder
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := writeFile(path, content); err != nil {
		t.Fatal(err)
	}
}

func TestRelease(t *testing.T) {
	folder := newRelease(t)
	names := []string{
		"install.yaml", "kubectl-ostiary_linux_arm64.spdx.json", "kubectl-ostiary_linux_arm64.tar.gz",
		"kubectl-ostiary_windows_amd64.spdx.json", "kubectl-ostiary_windows_amd64.zip",
		"ostiary-1.2.3.tgz", "ostiary-chart.tar", "ostiary-linux-amd64.spdx.json", "ostiary-linux-arm64.spdx.json",
		"ostiary-policies-1.2.3.tgz", "ostiary-policies-chart.tar", "ostiary.tar", "provenance.intoto.json",
		"self-test.yaml", "uninstall.yaml",
	}
	var sums []string
	for _, name := range names {
		sum, err := sumOf(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, sum+"  "+name+"\n")
	}
	if got, want := string(read(t, filepath.Join(folder, sumsFile))), strings.Join(sums, ""); got != want {
		t.Errorf("checksums\n%s\nwant\n%s", got, want)
	}
	image := openTest(t, filepath.Join(folder, imageFile))
	if got, want := string(read(t, filepath.Join(folder, "install.yaml"))), "image: ghcr.io/ostiary/ostiary:v1.2.3@"+image.digest.String()+"\n"; got != want {
		t.Errorf("install.yaml has %q, want %q", got, want)
	}
	t.Run("the provenance names every file and artifact", func(t *testing.T) { testProvenance(t, folder, names) })
	t.Run("the chart has the version and the image", func(t *testing.T) { testChart(t, folder, image.digest) })
	t.Run("another release is equal", func(t *testing.T) {
		other := newRelease(t)
		// The parts hold this test and files of another folder; what is made of them is equal.
		for _, name := range []string{sumsFile, provenanceFile} {
			if !bytes.Equal(read(t, filepath.Join(other, name)), read(t, filepath.Join(folder, name))) {
				t.Errorf("%s differs", name)
			}
		}
	})
}

func openTest(t *testing.T, path string) *archived {
	t.Helper()
	a, err := openArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a
}

func testProvenance(t *testing.T, folder string, names []string) {
	s, err := readProvenance(filepath.Join(folder, provenanceFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ghcr.io/ostiary/charts/ostiary", "ghcr.io/ostiary/charts/ostiary-policies", "ghcr.io/ostiary/ostiary"}
	want = append(want, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == provenanceFile })...)
	var got []string
	for _, subject := range s.Subject {
		got = append(got, subject.Name)
		if len(subject.Digest["sha256"]) != 64 {
			t.Errorf("%s has the digest %v", subject.Name, subject.Digest)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("subjects %q, want %q", got, want)
	}
	source := s.Predicate.Definition.Resolved[0]
	if source.URI != "git+https://github.com/ostiary/ostiary@refs/tags/v1.2.3" || source.Digest["gitCommit"] != testRevision {
		t.Errorf("source %v", source)
	}
}

func testChart(t *testing.T, folder string, image v1.Hash) {
	unzipped, err := gzip.NewReader(bytes.NewReader(read(t, filepath.Join(folder, "ostiary-1.2.3.tgz"))))
	if err != nil {
		t.Fatal(err)
	}
	files := tarContent(t, unzipped)
	var metadata struct {
		Version, AppVersion string
		Annotations         map[string]string
	}
	if err := yaml.Unmarshal(files["ostiary/Chart.yaml"], &metadata); err != nil {
		t.Fatal(err)
	}
	if metadata.Version != "1.2.3" || metadata.AppVersion != "v1.2.3" {
		t.Errorf("the chart is %s of %s", metadata.Version, metadata.AppVersion)
	}
	if got, want := metadata.Annotations["artifacthub.io/images"], "ghcr.io/ostiary/ostiary:v1.2.3@"+image.String(); !strings.Contains(got, want) {
		t.Errorf("the chart names the images %q, want %s", got, want)
	}
	if !bytes.Contains(files["ostiary/README.md"], []byte("oci://ghcr.io/ostiary/charts/ostiary --version 1.2.3 --namespace")) {
		t.Errorf("README.md installs another version:\n%s", files["ostiary/README.md"])
	}
	if files["ostiary/artifacthub-repo.yml"] != nil {
		t.Error("the chart has the settings of its repository")
	}
	if len(files["ostiary/templates/deployment.yaml"]) == 0 || len(files["ostiary/files/crd.yaml"]) == 0 {
		t.Error("the chart has no Deployment or definition")
	}
}

func TestReleaseRefusals(t *testing.T) {
	folder, complete := newParts(t), newRelease(t)
	changed := newRelease(t)
	put(t, filepath.Join(changed, chartFile("ostiary")), read(t, filepath.Join(newRelease(t, "-created=1700000001"), chartFile("ostiary"))))
	valid := []string{"release", "-folder=" + folder, "-charts=../../charts", "-version=v1.2.3", "-revision=" + testRevision}
	put(t, filepath.Join(folder, "uninstall.yaml"), []byte("image: other\n"))
	for name, tt := range map[string]struct {
		arguments []string
		wantErr   string
	}{
		"no version":              {[]string{"release"}, `-version "": give a semantic version with v, such as v0.1.0`},
		"a version without v":     {append(valid, "-version=1.2.3"), `-version "1.2.3"`},
		"a version of a commit":   {append(valid, "-version=v1.2.3+a"), `-version "v1.2.3+a"`},
		"a short commit":          {append(valid, "-revision=abc"), `-revision "abc": give the full name of a commit`},
		"no image":                {append(valid, "-folder="+t.TempDir()), "unpacking "},
		"manifests without it":    {valid, "uninstall.yaml has the image ghcr.io/ostiary/ostiary:dev 0 times, want once"},
		"a publication, no name":  {[]string{"publish"}, `-version ""`},
		"a registry for everyone": {[]string{"registry", "-address=0.0.0.0:0"}, "it listens on loopback only"},
		"a registry that is bad":  {[]string{"publish", "-folder=" + complete, "-version=v1.2.3", "-registry=A B"}, "naming ostiary"},
		"parts of a release":      {[]string{"publish", "-folder=" + folder, "-version=v1.2.3"}, "reading the provenance"},
		"another version":         {[]string{"publish", "-folder=" + complete, "-version=v1.2.4"}, `has the release "v1.2.3": run make release VERSION=v1.2.4`},
		"a changed chart":         {[]string{"publish", "-folder=" + changed, "-version=v1.2.3", "-registry=" + loopback(t), "-charts=../../charts"}, "the provenance does not name charts/ostiary with the digest sha256:"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), tt.arguments, io.Discard); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

// TestNotes prints the notes of a release, and rejects one that is not prepared.
func TestNotes(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "hack", "release.sh"), read(t, "../release.sh"))
	put(t, filepath.Join(root, "charts", "ostiary", "Chart.yaml"), []byte("name: ostiary\nversion: 0.2.0\n"))
	put(t, filepath.Join(root, "CHANGELOG.md"), []byte("# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-01-01\n\n### Added\n\n- More.\n\n## [0.2.0-rc.1] - 2025-12-01\n\n- A part.\n\n## [0.1.0]\n\n- All.\n"))
	for version, tt := range map[string]struct{ want, wantErr string }{
		"v0.2.0":      {"\n### Added\n\n- More.\n", ""},
		"v0.2.0-rc.1": {"\n- A part.\n", ""},
		"v0.2.0-rc.2": {"", "release: CHANGELOG.md has no section [0.2.0-rc.2]: move the entries of [Unreleased] there\n"},
		"v0.1.0":      {"", "release: charts/ostiary/Chart.yaml has another version than v0.1.0: raise it, and the versions in the documents\n"},
	} {
		t.Run(version, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "hack", "release.sh"), "notes", version)
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if string(out) != tt.want || errs.String() != tt.wantErr || (err == nil) != (tt.wantErr == "") {
				t.Errorf("got %q, %q, %v, want %q, %q", out, errs.String(), err, tt.want, tt.wantErr)
			}
		})
	}
}

// loopback serves a registry on this machine.
func loopback(t *testing.T) string {
	t.Helper()
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, []string{"registry", "-address=127.0.0.1:0"}, in) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address) + "/ostiary"
}

// TestPublish pulls from a registry what was pushed to it.
func TestPublish(t *testing.T) {
	folder, to := newRelease(t), loopback(t)
	pushed := publishTo(t, folder, to)
	if len(pushed) != 3 {
		t.Fatalf("pushed %q, want the image and two charts", pushed)
	}
	index, err := remote.Index(reference(t, pushed[0]))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Errorf("the image has the platforms %v, %v", manifest, err)
	}
	chart, err := remote.Image(reference(t, to+"/charts/ostiary:1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range chartNames() {
		settings, err := remote.Image(reference(t, to+"/charts/"+name+":artifacthub.io"))
		if err != nil {
			t.Fatal(err)
		}
		wantLayer(t, settings, hubConfigType, hubContentType, read(t, "../../charts/"+name+"/artifacthub-repo.yml"))
	}
	if digest, err := chart.Digest(); err != nil || !strings.HasSuffix(pushed[1], "/charts/ostiary@"+digest.String()) {
		t.Errorf("the tag of the chart is %s, %v, want %s", digest, err, pushed[1])
	}
	wantLayer(t, chart, chartConfigType, chartContentType, read(t, filepath.Join(folder, "ostiary-1.2.3.tgz")))
}

// wantLayer compares an artifact in a registry with its only layer.
func wantLayer(t *testing.T, pulled v1.Image, configType, contentType types.MediaType, want []byte) {
	t.Helper()
	described, err := pulled.Manifest()
	if err != nil || described.Config.MediaType != configType || len(described.Layers) != 1 || described.Layers[0].MediaType != contentType {
		t.Fatalf("the artifact is %+v, %v", described, err)
	}
	layers, err := pulled.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(content); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the artifact in the registry has %d bytes, %v, want %d", len(got), err, len(want))
	}
}

func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	parsed, err := name.ParseReference(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func publishTo(t *testing.T, folder, to string, arguments ...string) []string {
	t.Helper()
	var out bytes.Buffer
	arguments = append([]string{"publish", "-folder=" + folder, "-charts=../../charts", "-version=v1.2.3", "-registry=" + to}, arguments...)
	if err := run(t.Context(), arguments, &out); err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out.String())
}

// TestSigned publishes the release in a folder, verifies with cosign what is signed with its key,
// and changes it. Helm pulls the chart by its digest.
func TestSigned(t *testing.T) {
	cosign, helm, folder, key := os.Getenv("COSIGN"), os.Getenv("HELM"), os.Getenv("RELEASE"), os.Getenv("KEY")
	if cosign == "" || helm == "" || folder == "" || key == "" {
		t.Skip("COSIGN and HELM, the paths of the programs, RELEASE, a folder, and KEY, the path of its key, are not all set: make release-check runs this test")
	}
	s, err := readProvenance(filepath.Join(folder, provenanceFile))
	if err != nil {
		t.Fatal(err)
	}
	version, other, to := s.Predicate.Definition.Parameters["version"], newKey(t, cosign), loopback(t)
	pushed := publishTo(t, folder, to, "-version="+version, "-cosign="+cosign, "-sign=--tlog-upload=false --key="+key+".key")
	out, err := exec.CommandContext(t.Context(), helm, "show", "chart", "oci://"+pushed[1], "--plain-http").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "appVersion: "+version+"\n") {
		t.Errorf("Helm shows the chart %s: %v: %s", pushed[1], err, out)
	}
	unsigned := publishTo(t, newRelease(t, "-created=1700000001"), to+"/unsigned")
	sums := filepath.Join(folder, sumsFile)
	changed := filepath.Join(t.TempDir(), sumsFile)
	put(t, changed, append(read(t, sums), '\n'))
	// With a key, nothing is looked up in it. Without the file, cosign downloads Sigstore's.
	trusted := filepath.Join(t.TempDir(), "trusted_root.json")
	put(t, trusted, []byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}`))
	platform := openTest(t, filepath.Join(folder, imageFile)).images[1].Digest.String()
	blob := func(file, key string) []string {
		return []string{"verify-blob", "--new-bundle-format", "--insecure-ignore-tlog", "--trusted-root=" + trusted, "--key=" + key + ".pub", "--bundle=" + sums + ".sigstore.json", file}
	}
	image := func(command, key, reference string, more ...string) []string {
		return append([]string{command, "--insecure-ignore-tlog", "--key=" + key + ".pub", reference}, more...)
	}
	for name, tt := range map[string]struct {
		arguments []string
		want      bool
	}{
		"the checksums":                 {blob(sums, key), true},
		"changed checksums":             {blob(changed, key), false},
		"the checksums, another key":    {blob(sums, other), false},
		"the image":                     {image("verify", key, pushed[0]), true},
		"the image by its tag":          {image("verify", key, to+"/ostiary:"+version), true},
		"the chart":                     {image("verify", key, pushed[1]), true},
		"the library":                   {image("verify", key, pushed[2]), true},
		"the image, another key":        {image("verify", other, pushed[0]), false},
		"an image without a signature":  {image("verify", key, unsigned[0]), false},
		"the provenance":                {image("verify-attestation", key, pushed[0], "--type=slsaprovenance1"), true},
		"the provenance of the chart":   {image("verify-attestation", key, pushed[1], "--type=slsaprovenance1"), true},
		"the bill of materials":         {image("verify-attestation", key, to+"/ostiary@"+platform, "--type=spdxjson"), true},
		"the provenance, another key":   {image("verify-attestation", other, pushed[0], "--type=slsaprovenance1"), false},
		"an attestation of another one": {image("verify-attestation", key, unsigned[0], "--type=slsaprovenance1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), cosign, tt.arguments...).CombinedOutput()
			if (err == nil) != tt.want {
				t.Errorf("verified: %t, want %t: %s", err == nil, tt.want, out)
			}
		})
	}
}

// newKey makes the files NAME.key and NAME.pub, and returns their path without the extension.
func newKey(t *testing.T, cosign string) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "test")
	if out, err := exec.CommandContext(t.Context(), cosign, "generate-key-pair", "--output-key-prefix="+prefix).CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("making a key: %w: %s", err, out))
	}
	return prefix
}
