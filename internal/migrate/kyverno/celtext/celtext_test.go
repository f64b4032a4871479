package celtext_test

import (
	"testing"

	ce "github.com/ostiary/ostiary/internal/migrate/kyverno/celtext"
)

// TestExpressions checks the parentheses, constants and negations of expressions.
func TestExpressions(t *testing.T) {
	t.Parallel()
	a, b, c := ce.Term("a"), ce.Term("b"), ce.Term("c")
	equal := ce.Relate(a, "==", b)
	tests := map[string]struct {
		got  ce.Expression
		want string
	}{
		"no needless parentheses":           {ce.Or(ce.And(a, b), c), "a && b || c"},
		"a disjunction in a conjunction":    {ce.And(ce.Or(a, b), c), "(a || b) && c"},
		"nested conjunctions":               {ce.And(ce.And(a, b), ce.And(b, c)), "a && b && c"},
		"constants":                         {ce.And(a, ce.True(), ce.Or(ce.False(), b)), "a && b"},
		"an absorbing constant":             {ce.Or(a, ce.True()), "true"},
		"nothing":                           {ce.And(), "true"},
		"the opposite of a relation":        {ce.Not(equal), "a != b"},
		"twice the opposite":                {ce.Not(ce.Not(equal)), "a == b"},
		"the negation of a conjunction":     {ce.Not(ce.And(a, b)), "!(a && b)"},
		"twice the negation":                {ce.Not(ce.Not(ce.Or(a, b))), "a || b"},
		"a conditional with a constant":     {ce.If(a, b, ce.False()), "a && b"},
		"a conditional":                     {ce.If(equal, b, c), "a == b ? b : c"},
		"a conditional in a conjunction":    {ce.And(ce.If(a, b, c), a), "(a ? b : c) && a"},
		"a backslash":                       {ce.Quote(`^a\.b$`), `r"^a\.b$"`},
		"a quote and a backslash at an end": {ce.Quote("\"\\"), `"\"\\"`},
		"a macro without a condition":       {ce.Macro(a, "all", "x", ce.True()), "true"},
		"a value that is a boolean":         {ce.Dynamic(a).Bool(), "a == true"},
		"its negation":                      {ce.Not(ce.Dynamic(a)).Bool(), "!a"},
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
		"containers": "container", "policies": "policy", "addresses": "address", "env": "item", "objects": "item", "params": "param", "ifs": "item", "a-bs": "item",
	} {
		if got := ce.Singular(list, "item"); got != want {
			t.Errorf("%s: got %s, want %s", list, got, want)
		}
	}
}
