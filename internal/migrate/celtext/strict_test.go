package celtext_test

import (
	"testing"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// AlwaysReads is true only if no evaluation of an expression hides a failure of the part.
func TestAlwaysReads(t *testing.T) {
	const part = "object.metadata.labels.team"
	for name, c := range map[string]struct {
		expression string
		want       bool
	}{
		"the part itself":                {part, true},
		"an operand":                     {part + ` == "a"`, true},
		"an argument":                    {`["a"].exists(x, x == "a") == (` + part + ` in ["b"])`, true},
		"the target of a macro":          {`object.metadata.labels.team.split("-").all(x, x == "a")`, true},
		"the body of a macro":            {`["a"].all(x, x == object.metadata.labels.team)`, false},
		"one side of a conjunction":      {`object.a == "b" && ` + part + ` == "a"`, false},
		"both sides of a disjunction":    {part + ` == "b" || ` + part + ` == "a"`, true},
		"the condition of a conditional": {part + ` == "b" ? true : false`, true},
		"one branch of a conditional":    {`object.b ? ` + part + ` == "a" : true`, false},
		"both branches of a conditional": {`object.b ? ` + part + ` == "a" : ` + part + ` == "c"`, true},
		"the value of a bind":            {`cel.bind(x, ` + part + `, true)`, true},
		"an element of a list":           {`[` + part + `].size() > 0`, true},
		"presence":                       {`has(object.metadata.labels.team)`, false},
		"another field":                  {`object.metadata.labels.other == "a"`, false},
		"a constant":                     {`"object.metadata.labels.team" == "a"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := celtext.AlwaysReads(c.expression, part); got != c.want {
				t.Errorf("AlwaysReads(%s) = %v, want %v", c.expression, got, c.want)
			}
		})
	}
}
