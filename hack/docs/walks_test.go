package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxSteps is the number of steps in which a reader follows a request or a policy.
const maxSteps = 12

var (
	walkStep     = regexp.MustCompile("^\\| (\\d+) \\| `([^`]+)` \\| (`[^|]+`) \\|")
	walkFunction = regexp.MustCompile("`([^`]+)`")
)

// TestWalks compares the functions that docs/design/architecture.md follows with the code.
func TestWalks(t *testing.T) {
	document, err := os.ReadFile("../../docs/design/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for line := range strings.Lines(string(document)) {
		step := walkStep.FindStringSubmatch(line)
		if step == nil {
			continue
		}
		steps++
		for _, name := range walkFunction.FindAllStringSubmatch(step[3], -1) {
			if !declaresFunction(t, "../../"+step[2], name[1]) {
				t.Errorf("step %s: package %s has no function %s", step[1], step[2], name[1])
			}
		}
		if n, err := strconv.Atoi(step[1]); err != nil || n > maxSteps {
			t.Errorf("step %s: a walk has at most %d steps", step[1], maxSteps)
		}
	}
	if steps == 0 {
		t.Error("docs/design/architecture.md has no walks")
	}
}

// declaresFunction reports whether the files of a package declare a function, or a
// method named as Type.Method.
func declaresFunction(t *testing.T, folder, name string) bool {
	t.Helper()
	pattern := `(?m)^func ` + regexp.QuoteMeta(name) + `\(`
	if receiver, method, ok := strings.Cut(name, "."); ok {
		pattern = `(?m)^func \(\w+ \*?` + regexp.QuoteMeta(receiver) + `\) ` + regexp.QuoteMeta(method) + `\(`
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		source, err := os.ReadFile(folder + "/" + f.Name())
		if strings.HasSuffix(f.Name(), ".go") && err == nil && regexp.MustCompile(pattern).Match(source) {
			return true
		}
	}
	return false
}
