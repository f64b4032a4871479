package pattern

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// This file is an interpreter of patterns, written from their description. It shares nothing
// with the compiler.

// verdict is what a part of a pattern says of a value.
type verdict int

const (
	pass       verdict = iota
	fail               //
	skipHere           // an anchor of the map itself does not match
	skipInside         // everything inside is skipped
)

func (v verdict) skipped() bool { return v == skipHere || v == skipInside }

// interpreter evaluates one pattern. It is ambiguous if a key with wildcards matches several
// keys, of which Kyverno takes any.
type interpreter struct{ ambiguous bool }

func (i *interpreter) value(value, pattern any, path string) verdict {
	switch p := pattern.(type) {
	case map[string]any:
		m, ok := value.(map[string]any)
		if !ok {
			return fail
		}
		return i.mapping(m, p, path)
	case []any:
		l, ok := value.([]any)
		if !ok || len(p) == 0 {
			return fail
		}
		return i.list(l, p, path)
	}
	if l, ok := value.([]any); ok {
		for _, element := range l {
			if !scalarMatches(element, pattern) {
				return fail
			}
		}
		return pass
	}
	if scalarMatches(value, pattern) {
		return pass
	}
	return fail
}

func (i *interpreter) list(value, pattern []any, path string) verdict {
	switch pattern[0].(type) {
	case map[string]any:
		passed, skipped := 0, 0
		for _, element := range value {
			switch v := i.value(element, pattern[0], path+"[]"); {
			case v.skipped():
				skipped++
			case v == fail:
				return fail
			default:
				passed++
			}
		}
		if passed == 0 && skipped > 0 {
			return skipInside
		}
		return pass
	case []any:
		if len(value) < len(pattern) {
			return fail
		}
		passed, skipped := 0, 0
		for n, p := range pattern {
			switch v := i.value(value[n], p, path+"[]"); {
			case v.skipped():
				skipped++
			case v == fail:
				return fail
			default:
				passed++
			}
		}
		if passed == 0 && skipped > 0 {
			return skipInside
		}
		return pass
	}
	return i.value(value, pattern[0], path+"[]")
}

var anchorKey = regexp.MustCompile(`^([+<=X^]?)\((.+)\)$`)

// split returns the anchor and the name of a key. The anchor of other keys is "plain".
func splitKey(key string) (anchor, name string) {
	if m := anchorKey.FindStringSubmatch(key); m != nil {
		return m[1], m[2]
	}
	return "plain", key
}

func anchored(pattern any) bool {
	switch p := pattern.(type) {
	case map[string]any:
		for key, value := range p {
			if anchor, _ := splitKey(key); anchor != "plain" && anchor != "+" || anchored(value) {
				return true
			}
		}
	case []any:
		for _, element := range p {
			if anchored(element) {
				return true
			}
		}
	}
	return false
}

func (i *interpreter) mapping(value, pattern map[string]any, path string) verdict {
	if strings.HasSuffix(path, ".metadata.labels") || strings.HasSuffix(path, ".metadata.annotations") {
		pattern = i.expand(value, pattern)
	}
	var first, nested, rest []string
	for key := range pattern {
		switch anchor, _ := splitKey(key); {
		case slices.Contains([]string{"", "=", "X", "^"}, anchor):
			first = append(first, key)
		case anchor == "<" || anchored(pattern[key]):
			nested = append(nested, key)
		default:
			rest = append(rest, key)
		}
	}
	sort.Strings(first)
	sort.Sort(sort.Reverse(sort.StringSlice(nested)))
	passed, skipped, here := 0, 0, false
	for _, key := range first {
		switch v := i.member(value, key, pattern[key], path); {
		case v == fail && !here:
			return fail
		case v == fail:
		case v == pass:
			passed++
		default:
			skipped++
			here = here || v == skipHere
		}
	}
	if skipped > 0 && (passed == 0 || here) {
		return skipInside
	}
	for _, key := range append(nested, rest...) {
		if v := i.member(value, key, pattern[key], path); v != pass {
			return v
		}
	}
	return pass
}

func (i *interpreter) member(value map[string]any, key string, pattern any, path string) verdict {
	anchor, name := splitKey(key)
	v, present := value[name]
	path += "." + name
	switch anchor {
	case "X":
		if present {
			return fail
		}
		return pass
	case "=":
		if !present {
			return pass
		}
		return i.value(v, pattern, path)
	case "", "<":
		if !present && anchor == "<" {
			return pass
		}
		if !present || i.value(v, pattern, path) != pass {
			return skipHere
		}
		return pass
	case "^":
		if !present {
			return pass
		}
		return i.exists(v, pattern, path)
	}
	if pattern == "*" {
		if v == nil {
			return fail
		}
		return pass
	}
	return i.value(v, pattern, path)
}

func (i *interpreter) exists(value, pattern any, path string) verdict {
	l, ok := value.([]any)
	patterns, ok2 := pattern.([]any)
	if !ok || !ok2 {
		return fail
	}
	for _, p := range patterns {
		if _, ok := p.(map[string]any); !ok {
			return fail
		}
		found := false
		for _, element := range l {
			found = found || i.value(element, p, path+"[]") == pass
		}
		if !found {
			return fail
		}
	}
	return pass
}

// expand replaces keys with wildcards by the keys that they match, and drops members that
// are no text.
func (i *interpreter) expand(value, pattern map[string]any) map[string]any {
	expanded := map[string]any{}
	for key, p := range pattern {
		if _, ok := p.(string); !ok {
			continue
		}
		anchor, name := splitKey(key)
		found := 0
		for k, v := range value {
			if _, text := v.(string); text && strings.ContainsAny(name, "*?") && wild(name, k) {
				found++
				key = k
				if anchor != "plain" {
					key = anchor + "(" + k + ")"
				}
			}
		}
		if _, twice := expanded[key]; found > 1 || twice {
			i.ambiguous = true
		}
		expanded[key] = p
	}
	return expanded
}

func wild(pattern, text string) bool {
	expression := regexp.QuoteMeta(pattern)
	expression = strings.ReplaceAll(strings.ReplaceAll(expression, `\*`, `.*`), `\?`, `.`)
	return regexp.MustCompile(`(?s)^` + expression + `$`).MatchString(text)
}

func scalarMatches(value, pattern any) bool {
	switch p := pattern.(type) {
	case nil:
		return value == nil || value == "" || value == false || value == int64(0) || value == 0.0
	case bool:
		return value == p
	case int64:
		switch v := value.(type) {
		case int64:
			return v == p
		case float64:
			return v == math.Trunc(v) && int64(v) == p
		case string:
			n, err := strconv.ParseInt(v, 10, 64)
			return err == nil && n == p
		}
		return false
	case float64:
		switch v := value.(type) {
		case int64:
			return float64(v) == p
		case float64:
			return v == p
		case string:
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && n == p
		}
		return false
	}
	for _, alternative := range strings.Split(pattern.(string), "|") {
		all := true
		for _, condition := range strings.Split(strings.TrimSpace(alternative), "&") {
			all = all && conditionMatches(value, strings.TrimSpace(condition))
		}
		if all {
			return true
		}
	}
	return false
}

var interval = regexp.MustCompile(`^([-+]?\d+(?:\.\d+)?[A-Za-z]*)(!?-)([-+]?\d+(?:\.\d+)?[A-Za-z]*)$`)

func conditionMatches(value any, condition string) bool {
	if len(condition) > 1 {
		for _, operator := range []string{">=", "<=", ">", "<", "!"} {
			if strings.HasPrefix(condition, operator) {
				return compares2(value, operator, strings.TrimSpace(condition[len(operator):]))
			}
		}
		switch m := interval.FindStringSubmatch(condition); {
		case m == nil:
		case m[2] == "-":
			return compares2(value, ">=", m[1]) && compares2(value, "<=", m[3])
		default:
			return compares2(value, "<", m[1]) || compares2(value, ">", m[3])
		}
	}
	return compares2(value, "=", condition)
}

func compares2(value any, operator, operand string) bool {
	number, isNumber := "", true
	text, isText := "", true
	switch v := value.(type) {
	case nil:
		number, isText = "0", false
	case string:
		number, text = v, v
	case int64:
		number = strconv.FormatInt(v, 10)
		text = number
	case float64:
		number, text = fmt.Sprintf("%f", v), strconv.FormatFloat(v, 'E', -1, 64)
	case bool:
		isNumber, text = false, strconv.FormatBool(v)
	default:
		return false
	}
	if isNumber {
		a, err := time.ParseDuration(number)
		if b, err2 := time.ParseDuration(operand); err == nil && err2 == nil {
			return signMatches(operator, int(min(max(a-b, -1), 1)))
		}
		q, err := resource.ParseQuantity(number)
		if r, err2 := resource.ParseQuantity(operand); err == nil && err2 == nil {
			return signMatches(operator, q.Cmp(r))
		}
	}
	switch {
	case !isText:
		return false
	case operator == "=":
		return wild(operand, text)
	}
	return operator == "!" && !wild(operand, text)
}

func signMatches(operator string, sign int) bool {
	switch operator {
	case "=":
		return sign == 0
	case "!":
		return sign != 0
	case ">":
		return sign > 0
	case ">=":
		return sign >= 0
	case "<":
		return sign < 0
	}
	return sign <= 0
}
