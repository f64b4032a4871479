package celtext

import (
	"testing"
)

// TestExpressions checks the parentheses, constants and negations of expressions.
func TestExpressions(t *testing.T) {
	t.Parallel()
	a, b, c := Term("a"), Term("b"), Term("c")
	equal := Relate(a, "==", b)
	tests := map[string]struct {
		got  Expression
		want string
	}{
		"no needless parentheses":           {Or(And(a, b), c), "a && b || c"},
		"a disjunction in a conjunction":    {And(Or(a, b), c), "(a || b) && c"},
		"nested conjunctions":               {And(And(a, b), And(b, c)), "a && b && c"},
		"constants":                         {And(a, True(), Or(False(), b)), "a && b"},
		"an absorbing constant":             {Or(a, True()), "true"},
		"nothing":                           {And(), "true"},
		"the opposite of a relation":        {Not(equal), "a != b"},
		"twice the opposite":                {Not(Not(equal)), "a == b"},
		"the negation of a conjunction":     {Not(And(a, b)), "!(a && b)"},
		"twice the negation":                {Not(Not(Or(a, b))), "a || b"},
		"a conditional with a constant":     {If(a, b, False()), "a && b"},
		"a conditional":                     {If(equal, b, c), "a == b ? b : c"},
		"a conditional in a conjunction":    {And(If(a, b, c), a), "(a ? b : c) && a"},
		"a backslash":                       {Quote(`^a\.b$`), `r"^a\.b$"`},
		"a quote and a backslash at an end": {Quote("\"\\"), `"\"\\"`},
		"a macro without a condition":       {Macro(a, "all", "x", True()), "true"},
		"a value that is a boolean":         {Dynamic(a).Bool(), "a == true"},
		"its negation":                      {Not(Dynamic(a)).Bool(), "!a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.got.String() != tt.want {
				t.Errorf("got %s, want %s", tt.got, tt.want)
			}
		})
	}
}

// TestSingular checks the names of elements of lists.
func TestSingular(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"containers": "container", "policies": "policy", "addresses": "address", "env": "item", "objects": "item",
		"params": "param", "ifs": "item", "a-bs": "item",
	} {
		if got := Singular(list, "item"); got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
}
