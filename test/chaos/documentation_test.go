package chaos

import (
	"os"
	"strings"
	"testing"
)

// Every scenario has a row in the documentation, and the other way round.
func TestDocumented(t *testing.T) {
	documented := map[string]bool{}
	for _, page := range []string{"scenarios.md", "attacks.md", "README.md"} {
		text, err := os.ReadFile("../../docs/chaos/" + page)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if name, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "`"); ok && strings.HasPrefix(line, "| `") {
				documented[name] = true
			}
		}
	}
	for _, s := range scenarios() {
		if !documented[s.name] {
			t.Errorf("no page of docs/chaos has a row for %s", s.name)
		}
		delete(documented, s.name)
	}
	for name := range documented {
		t.Errorf("docs/chaos has a row for %s, which is no scenario", name)
	}
}
