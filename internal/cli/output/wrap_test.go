package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrapText(t *testing.T) {
	tests := map[string]struct {
		text    string
		columns int
		want    []string
	}{
		"nothing":              {columns: 5, want: []string{""}},
		"words":                {text: "add the label team", columns: 9, want: []string{"add the", "label", "team"}},
		"several spaces":       {text: "a  b   c", columns: 5, want: []string{"a  b", "c"}},
		"a long name":          {text: "restricted-privilege-escalation", columns: 16, want: []string{"restricted-", "privilege-", "escalation"}},
		"without punctuation":  {text: "abcdefghij", columns: 4, want: []string{"abcd", "efgh", "ij"}},
		"an address":           {text: "see https://example.com/a/b", columns: 8, want: []string{"see", "https://example.com/a/b"}},
		"wide characters":      {text: "世界世界", columns: 5, want: []string{"世界", "世界"}},
		"combining characters": {text: "e\u0301e\u0301e\u0301 e", columns: 3, want: []string{"e\u0301e\u0301e\u0301", "e"}},
		"JSON":                 {text: `{"name":"web","image":"a"}`, columns: 14, want: []string{`{"name":"web",`, `"image":"a"}`}},
		"one column":           {text: "界a", columns: 1, want: []string{"界", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, wrapText(tt.text, tt.columns, TextWidth)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzTable checks that a table of a terminal loses no text and has no line that is too long.
func FuzzTable(f *testing.F) {
	f.Add("Pod shop/web", "require-team-label", "deny", "add the label team", 40)
	f.Add("世界", "a-b/c.d", "", `{"a":"b"}`, 9)
	f.Fuzz(func(t *testing.T, object, policy, decision, message string, columns int) {
		if columns < 30 || columns > 300 {
			return
		}
		header := []string{"OBJECT", "POLICY", "DECISION", "MESSAGE"}
		row := printableCells([]string{object, policy, decision, message})
		table := table{header: header, rows: [][]string{row}, paintCell: func(_ Style, _ int, text string) string { return text }}
		table.fit(columns)
		text := table.text()
		for line := range strings.Lines(text) {
			if width := TextWidth(strings.TrimSuffix(line, "\n")); width > columns && !strings.Contains(line, "https://") {
				t.Errorf("%d columns, want at most %d: %q", width, columns, line)
			}
		}
		count := func(text string) map[rune]int {
			out := map[rune]int{}
			for _, r := range strings.Join(strings.Fields(text), "") {
				out[r]++
			}
			return out
		}
		got := count(text)
		for r, n := range count(strings.Join(row, " ")) {
			if r != '-' && got[r] < n {
				t.Errorf("%d of %q, want at least %d in\n%s", got[r], r, n, text)
			}
		}
	})
}
