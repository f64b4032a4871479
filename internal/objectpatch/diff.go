package objectpatch

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxTable is the maximum of comparisons to align two lists. Longer lists are compared by
// position, between their equal beginnings and ends.
const maxTable = 1 << 10

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"` // nil means no value, a pointer to nil means null
}

// Diff returns the JSON patch from one JSON object to another. It omits equal values, and
// does not convert integers to float64. Neither argument is changed, and operations share
// values with after.
func Diff(before, after map[string]any) []Operation {
	var d differ
	d.objects(nil, before, after)
	return d.operations
}

type differ struct{ operations []Operation }

// place is the position of a value. Only operations convert it to text: the texts of all
// positions of a deep object would take its depth times its size.
type place struct {
	in   *place
	name string
}

func (p *place) member(name string) *place { return &place{in: p, name: name} }

func (p *place) element(index int) *place { return &place{in: p, name: strconv.Itoa(index)} }

// String returns the JSON Pointer of the place.
func (p *place) String() string {
	var names []string
	for ; p != nil; p = p.in {
		names = append(names, pointerEscape.Replace(p.name), "/")
	}
	slices.Reverse(names)
	return strings.Join(names, "")
}

func (d *differ) add(path *place, value any) {
	d.operations = append(d.operations, Operation{Op: "add", Path: path.String(), Value: &value})
}

func (d *differ) replace(path *place, value any) {
	d.operations = append(d.operations, Operation{Op: "replace", Path: path.String(), Value: &value})
}

func (d *differ) remove(path *place) {
	d.operations = append(d.operations, Operation{Op: "remove", Path: path.String()})
}

func (d *differ) values(path *place, before, after any) {
	switch a := after.(type) {
	case map[string]any:
		if b, ok := before.(map[string]any); ok {
			d.objects(path, b, a)
			return
		}
	case []any:
		if b, ok := before.([]any); ok {
			d.lists(path, b, a)
			return
		}
	}
	if !equalValues(before, after) {
		d.replace(path, after)
	}
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1") //nolint:gochecknoglobals // never changed, and safe for concurrent use

func (d *differ) objects(path *place, before, after map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[key]; !ok {
			d.remove(path.member(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		at := path.member(key)
		if old, ok := before[key]; ok {
			d.values(at, old, after[key])
		} else {
			d.add(at, after[key])
		}
	}
}

// lists keeps the elements that both lists have in the same order. It changes the
// elements between them in place.
func (d *differ) lists(path *place, before, after []any) {
	start := 0
	for start < len(before) && start < len(after) && equalValues(before[start], after[start]) {
		start++
	}
	end := 0
	for end < len(before)-start && end < len(after)-start && equalValues(before[len(before)-1-end], after[len(after)-1-end]) {
		end++
	}
	before, after = before[start:len(before)-end], after[start:len(after)-end]
	for _, kept := range commonSubsequence(before, after) {
		d.gap(path, start, before[:kept[0]], after[:kept[1]])
		start += kept[1] + 1
		before, after = before[kept[0]+1:], after[kept[1]+1:]
	}
	d.gap(path, start, before, after)
}

// gap changes the elements of a list from a position on.
func (d *differ) gap(path *place, at int, before, after []any) {
	pairs := min(len(before), len(after))
	for i := range pairs {
		d.values(path.element(at+i), before[i], after[i])
	}
	for range before[pairs:] {
		d.remove(path.element(at + pairs))
	}
	for i, value := range after[pairs:] {
		d.add(path.element(at+pairs+i), value)
	}
}

// commonSubsequence returns a longest common subsequence of two lists: for each element the number
// of omitted elements before it, in each list.
func commonSubsequence(before, after []any) [][2]int {
	if len(before) == 0 || len(after) == 0 || len(before)*len(after) > maxTable {
		return nil
	}
	width := len(after) + 1
	same := make([]bool, len(before)*width)
	length := make([]int, (len(before)+1)*width) // of the longest one from i, j on
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if same[i*width+j] = equalValues(before[i], after[j]); same[i*width+j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	var out [][2]int
	for i, j, fromI, fromJ := 0, 0, 0, 0; i < len(before) && j < len(after); {
		switch {
		case same[i*width+j]:
			out = append(out, [2]int{i - fromI, j - fromJ})
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return out
}

// equalValues compares JSON values. Numbers are equal with or without a fraction of zero.
func equalValues(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equalValues)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equalValues)
	case int64:
		if f, ok := b.(float64); ok {
			return equalNumbers(a, f)
		}
	case float64:
		if i, ok := b.(int64); ok {
			return equalNumbers(i, a)
		}
	}
	return a == b
}

func equalNumbers(i int64, f float64) bool {
	const limit = 1 << 63
	return -limit <= f && f < limit && int64(f) == i && float64(int64(f)) == f
}
