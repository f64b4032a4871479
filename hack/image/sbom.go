package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The used parts of SPDX 2.3.
type (
	document struct {
		Version       string         `json:"spdxVersion"`
		License       string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      creation       `json:"creationInfo"`
		Packages      []module       `json:"packages"`
		Relationships []relationship `json:"relationships"`
	}
	creation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	module struct {
		ID        string     `json:"SPDXID"`
		Name      string     `json:"name"`
		Version   string     `json:"versionInfo"`
		Location  string     `json:"downloadLocation"`
		Analyzed  bool       `json:"filesAnalyzed"`
		License   string     `json:"licenseDeclared"`
		Purpose   string     `json:"primaryPackagePurpose,omitempty"`
		Checksums []checksum `json:"checksums,omitempty"`
		Refs      []ref      `json:"externalRefs"`
	}
	checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	ref struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	relationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const (
	documentID = "SPDXRef-DOCUMENT"
	programID  = "SPDXRef-program"
	unknown    = "NOASSERTION"
)

// sbom lists the modules of a program. The Go linker writes them into the program, so the
// list always matches.
func (r *request) sbom(binary string, p v1.Platform) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading what the program was built from: %w", err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the program: %w", err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	program := newModule(programID, info.Main.Path, r.version)
	program.License, program.Purpose = "Apache-2.0", "APPLICATION"
	program.Checksums = []checksum{{Algorithm: "SHA256", Value: sum}}
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID,
		Name:          fmt.Sprintf("%s-%s-%s-%s", r.program, r.version, p.OS, p.Architecture),
		Namespace:     "https://ostiary.dev/spdx/" + r.program + "-" + sum,
		Creation:      creation{Created: r.created.Format("2006-01-02T15:04:05Z"), Creators: []string{"Tool: hack/image"}},
		Packages:      []module{program},
		Relationships: []relationship{{From: documentID, Type: "DESCRIBES", To: programID}},
	}
	d.add(newModule("SPDXRef-go", "stdlib", strings.TrimPrefix(info.GoVersion, "go")))
	for i, m := range info.Deps {
		d.add(dependency(i, m))
	}
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing what the program was built from: %w", err)
	}
	return append(out, '\n'), nil
}

func dependency(i int, m *debug.Module) module {
	if m.Replace != nil {
		m = m.Replace
	}
	return newModule(fmt.Sprintf("SPDXRef-module-%d", i+1), m.Path, m.Version)
}

func newModule(id, path, version string) module {
	return module{
		ID: id, Name: path, Version: version, Location: unknown, License: unknown,
		Refs: []ref{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: "pkg:golang/" + path + "@" + url.PathEscape(version)}},
	}
}

func (d *document) add(m module) {
	d.Packages = append(d.Packages, m)
	d.Relationships = append(d.Relationships, relationship{From: programID, Type: "DEPENDS_ON", To: m.ID})
}
