package oracles

import (
	"fmt"
	"slices"
	"strconv"
)

// path is the keys and indexes that lead to a value.
type path []any

// String writes a path as "spec.containers[0].image".
func (p path) String() (out string) {
	for _, element := range p {
		switch e := element.(type) {
		case string:
			if out != "" {
				out += "."
			}
			out += e
		case int:
			out += "[" + strconv.Itoa(e) + "]"
		}
	}
	return out
}

// pathsOf returns the paths of all values below a value, in a fixed order.
func pathsOf(value any, prefix path) (out []path) {
	add := func(element, child any) {
		p := append(slices.Clone(prefix), element)
		out = append(out, p)
		out = append(out, pathsOf(child, p)...)
	}
	switch v := value.(type) {
	case object:
		for _, key := range sortedKeys(v) {
			add(key, v[key])
		}
	case list:
		for i, item := range v {
			add(i, item)
		}
	}
	return out
}

func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// valueAt returns the value at a path; nil if there is none.
func valueAt(value any, p path) any {
	for _, element := range p {
		switch e := element.(type) {
		case string:
			m, _ := value.(object)
			value = m[e]
		case int:
			l, _ := value.(list)
			if e >= len(l) {
				return nil
			}
			value = l[e]
		}
	}
	return value
}

// with returns a copy of a value with another value at a path.
func with(value any, p path, to any) any {
	if len(p) == 0 {
		return to
	}
	switch e := p[0].(type) {
	case string:
		out := object{}
		m, _ := value.(object)
		for key, child := range m {
			out[key] = child
		}
		out[e] = with(m[e], p[1:], to)
		return out
	case int:
		l, _ := value.(list)
		out := slices.Clone(l)
		if e >= len(out) {
			return value
		}
		out[e] = with(out[e], p[1:], to)
		return out
	}
	panic(fmt.Sprintf("%v is neither a key nor an index", p[0]))
}

// without returns a copy of a value without the value at a path.
func without(value any, p path) any {
	last := len(p) - 1
	parent := valueAt(value, p[:last])
	switch e := p[last].(type) {
	case string:
		out := object{}
		m, _ := parent.(object)
		for key, child := range m {
			if key != e {
				out[key] = child
			}
		}
		return with(value, p[:last], out)
	case int:
		l, _ := parent.(list)
		return with(value, p[:last], slices.Delete(slices.Clone(l), e, e+1))
	}
	panic(fmt.Sprintf("%v is neither a key nor an index", p[last]))
}

// merged returns a value with the fields of another; lists are merged by position.
func merged(value, over any) any {
	switch o := over.(type) {
	case object:
		out := object{}
		m, _ := value.(object)
		for key, child := range m {
			out[key] = child
		}
		for key, child := range o {
			out[key] = merged(out[key], child)
		}
		return out
	case list:
		l, _ := value.(list)
		out := slices.Clone(l)
		for i, child := range o {
			if i < len(out) {
				out[i] = merged(out[i], child)
			} else {
				out = append(out, child)
			}
		}
		return out
	}
	return over
}
