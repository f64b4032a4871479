package integration

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var (
	warnedPath = regexp.MustCompile(`(?m)^Warning: (spec[^:\s]*):`)
	element    = regexp.MustCompile(`([A-Za-z]+)(?:\[(\d+)\])?`)
)

// checkWarnedFields expects that kubectl prints warnings only about elements of lists that the
// object has. Fields that have a default may be absent, because the author can add them.
func checkWarnedFields(t *testing.T, errOut string, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, found := range warnedPath.FindAllStringSubmatch(errOut, -1) {
		exists := false
		for _, u := range objects {
			exists = exists || hasElements(u.Object, found[1])
		}
		if !exists {
			t.Errorf("a warning names %s, which is not in the document", found[1])
		}
	}
}

func hasElements(object map[string]any, path string) bool {
	var at any = object
	for step := range strings.SplitSeq(path, ".") {
		parts := element.FindStringSubmatch(step)
		if parts == nil {
			return false
		}
		fields, _ := at.(map[string]any)
		at = fields[parts[1]]
		if parts[2] == "" {
			continue
		}
		index, _ := strconv.Atoi(parts[2])
		list, _ := at.([]any)
		if index >= len(list) {
			return false
		}
		at = list[index]
	}
	return true
}

func TestHasElements(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"resources": []any{"pods"}}}}}
	for path, want := range map[string]bool{
		"spec.failurePolicy": true, "spec.rules[0].resources[0]": true, "spec.rules[1]": false,
		"spec.rules[0].resources[1]": false, "spec.other[0].resources[0]": false,
	} {
		if got := hasElements(object, path); got != want {
			t.Errorf("hasElements(%s) = %t", path, got)
		}
	}
}
