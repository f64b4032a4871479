package output

import (
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
)

// context is the number of unchanged lines around a change.
const context = 2

// Diff returns the difference of two JSON documents as a unified diff of YAML.
func Diff(name string, before, after []byte) string {
	old, errOld := yaml.JSONToYAML(before)
	changed, errNew := yaml.JSONToYAML(after)
	if errOld != nil || errNew != nil { // they have been decoded before
		old, changed = before, after
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(string(old))), B: slices.Collect(strings.Lines(string(changed))),
		FromFile: name, ToFile: name + " (mutated)", Context: context,
	})
	if err != nil { // of a writer to memory
		return ""
	}
	return text
}

// PaintDiff colors a unified diff.
func PaintDiff(style Style, diff string) string {
	var out strings.Builder
	for line := range strings.Lines(diff) {
		text := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(text, "---"), strings.HasPrefix(text, "+++"), strings.HasPrefix(text, "@@"):
			text = Paint(style, Faint, text)
		case strings.HasPrefix(text, "-"):
			text = Paint(style, Red, text)
		case strings.HasPrefix(text, "+"):
			text = Paint(style, Green, text)
		}
		out.WriteString(text + "\n")
	}
	return out.String()
}
