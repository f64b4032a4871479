package scalar

import (
	"testing"
	"time"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

func TestExpressions(t *testing.T) {
	v := ce.Term("v")
	tests := map[string]struct {
		got  ce.Expression
		want string
	}{
		"no pattern":                   {MatchAny(v, nil), "false"},
		"a literal":                    {MatchAny(v, []string{"a"}), `v == "a"`},
		"literals":                     {MatchAny(v, []string{"a", "b"}), `v in ["a", "b"]`},
		"a literal and a wildcard":     {MatchAny(v, []string{"b*", "a"}), `v == "a" || v.startsWith("b")`},
		"everything":                   {MatchAny(v, []string{"a", "*"}), "true"},
		"a version":                    {CompareVersion(">=", "1.2.3", v), `isSemver(v) && semver(v).compareTo(semver("1.2.3")) >= 0`},
		"a quantity":                   {CompareQuantity("<", "1Gi", v), `quantity(string(v)).compareTo(quantity("1Gi")) < 0`},
		"a quantity beside other text": {CompareQuantity("==", "a*", v), `string(v).startsWith("a")`},
		"a range of numbers":           {InRange("1-10", v, true), "v >= 1 && v <= 10"},
		"seconds at most":              {OrderSeconds("<=", time.Hour, v), "v < 3601"},
		"seconds below":                {OrderSeconds("<", time.Hour, v), "v < 3600"},
		"seconds at least":             {OrderSeconds(">=", time.Hour, v), "v >= 3600"},
		"seconds above":                {OrderSeconds(">", time.Hour, v), "v >= 3601"},
		"seconds at most 0":            {OrderSeconds("<=", 0, v), "v < 1"},
		"seconds below 0":              {OrderSeconds("<", 0, v), "v <= -1"},
		"seconds at least 0":           {OrderSeconds(">=", 0, v), "v > -1"},
		"seconds above 0":              {OrderSeconds(">", 0, v), "v >= 1"},
		"negative seconds at most":     {OrderSeconds("<=", -time.Hour, v), "v <= -3600"},
		"negative seconds at least":    {OrderSeconds(">=", -time.Hour, v), "v > -3601"},
		"seconds at most half of one":  {OrderSeconds("<=", time.Second/2, v), "v < 1"},
		"seconds at least half of one": {OrderSeconds(">=", time.Second/2, v), "v >= 1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.got.String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestMatchesWildcard(t *testing.T) {
	tests := map[string]struct {
		pattern, text string
		want          bool
	}{
		"equal":                    {"web", "web", true},
		"another text":             {"web", "db", false},
		"a prefix":                 {"web-*", "web-1", true},
		"a star in the middle":     {"a*c*e", "abcde", true},
		"a star that backtracks":   {"*ab", "aab", true},
		"one character":            {"we?", "web", true},
		"no character for ?":       {"web?", "web", false},
		"nothing for *":            {"web*", "web", true},
		"a character of two bytes": {"?", "é", true},
		"everything":               {"*", "", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := MatchesWildcard(test.pattern, test.text); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
