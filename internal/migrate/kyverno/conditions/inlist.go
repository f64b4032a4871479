package conditions

import (
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// invalidList converts an operator for a list and a constant text that is no list: only a list of that text
// alone equals it. Of the negated operators, NotIn is true then, and all others are false.
func (t *membershipTarget) invalidList(k Value, operator string) (ce.Expression, error) {
	if t.whole == "" || operator == "anynotin" || operator == "allnotin" {
		return ce.False(), nil
	}
	return isOnlyElement(k, ce.Quote(t.whole))
}

// orOnlyElement gives In or NotIn of a list and a text that is not constant Kyverno's result if the text is no
// list, which is that of invalidList.
func (t *membershipTarget) orOnlyElement(k Value, e ce.Expression, negated bool) (ce.Expression, error) {
	text, err := t.value.strict()
	if err != nil {
		return text, err
	}
	only, err := isOnlyElement(k, text)
	if negated {
		return ce.Or(e, ce.And(ce.Not(isListText(text)), only)), err
	}
	return ce.Or(ce.And(isListText(text), e), only), err
}

// isOnlyElement is true for a list that has a text as its only element.
func isOnlyElement(k Value, text ce.Expression) (ce.Expression, error) {
	equal, err := k.stream.quantify("all", func(v Value) (ce.Expression, error) {
		source, err := v.existing()
		if err != nil {
			return source, err
		}
		element, err := memberKey{source: source, kind: v.kind()}.text()
		return ce.Relate(element, "==", text), err
	})
	if err != nil {
		return equal, err
	}
	list, err := k.strict()
	return ce.And(k.stream.present(), ce.Relate(ce.Call(list, "size"), "==", ce.Term("1")), equal), err
}
