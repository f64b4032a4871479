package classic

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Errors about patches of the elements of joined lists.
var (
	errJoinedIndex = errors.New("JSON patches of joined lists are left out, because elementIndex counts all of the " +
		"lists: use a foreach for each list")
	errJoinedName = errors.New("a patch of joined lists without the anchor (name) is left out, because Kyverno adds " +
		"an element to each list: use a foreach for each list")
)

// mutateJoined converts a patch for the elements of several lists. The anchor (name) selects the
// element in its own list, since names are unique among all lists of containers.
func (v *ruleConverter) mutateJoined(f forEachMutation, lists []ce.Place) error {
	if f.PatchStrategicMerge == nil {
		return errJoinedIndex
	}
	patches := map[string]any{}
	if err := splitPatch("object", f.PatchStrategicMerge, func(p any) any { return p }, patches); err != nil {
		return err
	}
	for _, list := range lists {
		path := list.Strict().String()
		patch, ok := patches[path]
		if !ok {
			continue // no element of the list has the name of one of another list
		}
		delete(patches, path)
		one := f
		one.List, one.PatchStrategicMerge = "request."+path, patch
		if err := v.mutateEach(one); err != nil {
			return err
		}
	}
	if len(patches) > 0 {
		return fmt.Errorf("%w: %s", errAnotherList, strings.Join(slices.Sorted(maps.Keys(patches)), ", "))
	}
	return nil
}

// splitPatch splits a patch into those of single lists, by their paths.
func splitPatch(path string, patch any, within func(any) any, out map[string]any) error {
	m, ok := patch.(map[string]any)
	if !ok {
		return errNoField
	}
	for key, value := range m {
		inner := func(p any) any { return within(map[string]any{key: p}) }
		elements, isList := value.([]any)
		if !isList {
			if err := splitPatch(path+"."+key, value, inner, out); err != nil {
				return err
			}
			continue
		}
		for _, element := range elements {
			if fields, ok := element.(map[string]any); !ok || fields["(name)"] == nil {
				return errJoinedName
			}
		}
		out[path+"."+key] = inner(value)
	}
	return nil
}
