package classic

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// patchStep is an operation of a JSON patch.
type patchStep struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// maxOperations is the maximum number of operations of a patch.
const maxOperations = 100

// jsonPatch converts a JSON patch. Like Kyverno's, it adds absent parents of what it adds,
// and does not fail for what it removes.
func (v *ruleConverter) jsonPatch(scope *conditions.Scope, text string, object ce.Place) (ce.Expression, error) {
	var operations []patchStep
	if err := yaml.UnmarshalStrict([]byte(text), &operations); err != nil {
		return ce.False(), fmt.Errorf("the patch is no list of operations: %w", err)
	}
	if len(operations) > maxOperations {
		return ce.False(), fmt.Errorf("the patch has more than %d operations: split it", maxOperations)
	}
	var parts []string
	ensured := map[string]bool{"/metadata": true}
	for i, o := range operations {
		found, err := patchOperation(scope, o, object, ensured)
		if err != nil {
			return ce.False(), fmt.Errorf("[%d]: %w", i, err)
		}
		parts = append(parts, found...)
	}
	return ce.Raw(strings.Join(parts, " + "), ce.Addition), nil
}

var indexPattern = regexp.MustCompile(`^([0-9]+|-)$`)

// patchOperation returns the operations of a JSONPatch for one operation.
func patchOperation(scope *conditions.Scope, o patchStep, object ce.Place, ensured map[string]bool) ([]string, error) {
	if strings.Contains(o.Path, "{{") || !strings.HasPrefix(o.Path, "/") {
		return nil, fmt.Errorf("the path %q is left out: it must be constant and begin with /", o.Path)
	}
	segments := strings.Split(o.Path[1:], "/")
	at := object
	for _, s := range segments {
		at = pointerStep(at, s)
	}
	switch o.Op {
	case "remove":
		if slices.Contains(segments, "-") {
			return nil, fmt.Errorf("the path %q is left out: - is no element that exists", o.Path)
		}
		list := patchList(o.Op, o.Path, ce.Expression{})
		if !at.Optional() {
			return []string{list}, nil
		}
		return []string{"(" + ce.If(at.Present(), ce.Term(list), ce.Term("[]")).String() + ")"}, nil
	case "add", "replace":
		value, err := valueOf(scope, o.Value)
		if err != nil {
			return nil, err
		}
		var parts []string
		if o.Op == "add" {
			if parts, err = addParents(segments, object, ensured); err != nil {
				return nil, err
			}
		}
		if o.Op == "replace" && at.Optional() { // API servers add what is absent, Kyverno fails
			parts = append(parts, patchList("remove", o.Path, ce.Expression{}))
			return append(parts, patchList("add", o.Path, value)), nil
		}
		return append(parts, patchList(o.Op, o.Path, value)), nil
	}
	return nil, fmt.Errorf("the operation %q is left out: write a JSONPatch in CEL", o.Op)
}

func patchList(op, path string, value ce.Expression) string {
	text := "[JSONPatch{op: " + ce.Quote(op).String() + ", path: " + ce.Quote(path).String()
	if op != "remove" {
		text += ", value: " + value.String()
	}
	return text + "}]"
}

// pointerStep returns the place of a segment of a JSON pointer.
func pointerStep(at ce.Place, segment string) ce.Place {
	if indexPattern.MatchString(segment) && segment != "-" {
		return at.Index(segment)
	}
	return at.Field(strings.NewReplacer("~1", "/", "~0", "~").Replace(segment))
}

// addParents returns operations that add the absent parents of a path.
func addParents(segments []string, object ce.Place, ensured map[string]bool) ([]string, error) {
	var parts []string
	at, path := object, ""
	for i, s := range segments[:len(segments)-1] {
		if indexPattern.MatchString(s) {
			if i < len(segments)-2 {
				return nil, fmt.Errorf(
					"the path /%s is left out: parents in an element of a list may be absent",
					strings.Join(segments, "/"),
				)
			}
			break
		}
		at, path = pointerStep(at, s), path+"/"+s
		if ensured[path] || !at.Optional() {
			continue
		}
		ensured[path] = true
		empty := ce.Term("{}")
		if indexPattern.MatchString(segments[i+1]) {
			empty = ce.Term("[]")
		}
		parts = append(
			parts,
			"("+ce.If(at.Present(), ce.Term("[]"), ce.Term(patchList("add", path, empty))).String()+")",
		)
	}
	return parts, nil
}
