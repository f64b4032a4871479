package scalar

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// textCondition is one comparison of a pattern's text: an operator and its operand.
type textCondition struct {
	operator string // ==, !=, <, <=, > or >=
	operand  string
	duration *time.Duration // if the operand is one
	quantity *resource.Quantity
}

func (c textCondition) numeric() bool { return c.duration != nil || c.quantity != nil }

// ordered reports whether the operator needs an order, which text does not have.
func (c textCondition) ordered() bool { return c.operator != "==" && c.operator != "!=" }

// parseAlternatives parses the text of a pattern: alternatives (|) of conditions that all apply
// (&).
func parseAlternatives(text string) [][]textCondition {
	var found [][]textCondition
	for alternative := range strings.SplitSeq(text, "|") {
		var all []textCondition
		for c := range strings.SplitSeq(strings.Trim(alternative, " "), "&") {
			all = append(all, parseConditions(strings.Trim(c, " "))...)
		}
		found = append(found, all)
	}
	return expandOutside(found)
}

var rangePattern = regexp.MustCompile(`^([-|+]?\d+(?:\.\d+)?[A-Za-z]*)(!?)-([-|+]?\d+(?:\.\d+)?[A-Za-z]*)$`)

// parseConditions parses one condition; a range is two.
func parseConditions(text string) []textCondition {
	if len(text) >= 2 {
		for _, operator := range []string{">=", "<=", ">", "<", "!"} { // in the order of recognition
			if operand, found := strings.CutPrefix(text, operator); found {
				return []textCondition{newCondition(strings.Replace(operator, "!", "!=", 1), operand)}
			}
		}
		switch m := rangePattern.FindStringSubmatch(text); {
		case m == nil:
		case m[2] == "":
			return []textCondition{newCondition(">=", m[1]), newCondition("<=", m[3])}
		default:
			return []textCondition{{operator: "!-"}, newCondition("<", m[1]), newCondition(">", m[3])}
		}
	}
	return []textCondition{newCondition("==", text)}
}

// expandOutside turns each a!-b into two alternatives.
func expandOutside(found [][]textCondition) [][]textCondition {
	var result [][]textCondition
	for _, all := range found {
		expanded := [][]textCondition{nil}
		for i := 0; i < len(all); i++ {
			ends := []textCondition{all[i]}
			if all[i].operator == "!-" {
				ends = all[i+1 : i+3]
				i += 2
			}
			var next [][]textCondition
			for _, e := range expanded {
				for _, c := range ends {
					next = append(next, append(append([]textCondition(nil), e...), c))
				}
			}
			expanded = next
		}
		result = append(result, expanded...)
	}
	return result
}

func newCondition(operator, operand string) textCondition {
	c := textCondition{operator: operator, operand: strings.TrimSpace(operand)}
	if d, err := time.ParseDuration(c.operand); err == nil {
		c.duration = &d
	}
	if q, err := resource.ParseQuantity(c.operand); err == nil {
		c.quantity = &q
	}
	return c
}

// holdsFor returns the result of an operator for the sign of a comparison.
func holdsFor(operator string, sign int) bool {
	switch operator {
	case "==":
		return sign == 0
	case "!=":
		return sign != 0
	case "<":
		return sign < 0
	case "<=":
		return sign <= 0
	case ">":
		return sign > 0
	}
	return sign >= 0
}

// Matches reports whether a value has a pattern, which is no map or list. The compiler asks
// it for the values that stand for an absent field.
func Matches(pattern, value any) bool {
	switch p := pattern.(type) {
	case nil:
		return value == nil || value == "" || value == false || value == int64(0)
	case bool:
		return value == p
	case int64:
		if s, ok := value.(string); ok {
			n, err := strconv.ParseInt(s, 10, 64)
			return err == nil && n == p
		}
		return value == p
	case float64:
		n, ok := value.(int64)
		return ok && float64(n) == p
	case string:
		for _, all := range parseAlternatives(p) {
			if matchesAll(all, value) {
				return true
			}
		}
	}
	return false
}

func matchesAll(all []textCondition, value any) bool {
	for _, c := range all {
		if !c.matches(value) {
			return false
		}
	}
	return true
}

// matches reports whether a string, an int64, a bool or nil satisfies a condition. The
// comparison with nil is the one with 0, except for text, which nil never satisfies.
func (c textCondition) matches(value any) bool {
	text, isText := value.(string)
	switch v := value.(type) {
	case nil:
		text = "0"
	case int64:
		text, isText = strconv.FormatInt(v, 10), true
	case bool:
		text, isText = strconv.FormatBool(v), true
	}
	if _, isBool := value.(bool); !isBool {
		if d, err := time.ParseDuration(text); c.duration != nil && err == nil {
			return holdsFor(c.operator, cmp.Compare(d, *c.duration))
		}
		if q, err := resource.ParseQuantity(text); c.quantity != nil && err == nil {
			return holdsFor(c.operator, q.Cmp(*c.quantity))
		}
	}
	return isText && !c.ordered() && MatchesWildcard(c.operand, text) == (c.operator == "==")
}

// integer returns the operand as an integer.
func (c textCondition) integer() (int64, bool) {
	if c.quantity == nil {
		return 0, false
	}
	n, ok := c.quantity.AsInt64()
	return n, ok && n != math.MinInt64
}
