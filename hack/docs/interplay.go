package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// interplay is what two features of policies do together.
type interplay struct {
	Features [2]string `json:"features"`
	What     string    `json:"what"`
	Want     []string  `json:"want"`
	Test     string    `json:"test"`
}

const interplayHead = `# Features together

<!-- Written by ` + "`make manifests` from `internal/policy/testdata/interplay.yaml`" + `: do not edit. -->

The tables describe how two features of a policy act together, in one request or for one stored object. ` + "`TestInterplay`" +
	` evaluates each pair with a policy that denies
everything, except for those that name another test. Validation rejects combinations without an effect when a policy is
applied, with the field and the reason, for example a preview in a policy without mutations.
`

// interplayDocument returns the document of pairs of features.
func interplayDocument(text []byte) (string, error) {
	var pairs []interplay
	if err := yaml.UnmarshalStrict(text, &pairs); err != nil {
		return "", fmt.Errorf("decoding the pairs: %w", err)
	}
	var features []string
	for _, p := range pairs {
		for _, feature := range p.Features {
			if !slices.Contains(features, feature) {
				features = append(features, feature)
			}
		}
	}
	var b strings.Builder
	b.WriteString(interplayHead)
	for _, feature := range features {
		fmt.Fprintf(&b, "\n## %s\n\n| with | together |\n|---|---|\n", feature)
		for _, p := range pairs {
			if at := slices.Index(p.Features[:], feature); at >= 0 {
				fmt.Fprintf(&b, "| %s | %s |\n", p.Features[1-at], cell(p.text()))
			}
		}
	}
	return b.String(), nil
}

func (p *interplay) text() string {
	if p.Test == "" {
		return p.What
	}
	return p.What + " (`" + p.Test + "`)"
}
