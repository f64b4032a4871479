package celtext

import (
	"slices"
	"testing"
)

func TestWithoutPlainOrValue(t *testing.T) {
	variables := map[string]string{
		"plain":    "object.spec",
		"optional": "object.?spec",
		"nested":   "variables.optional.replicas",
		"either":   "true ? object.?a : object.b",
	}
	tests := map[string]struct{ text, want, wantError string }{
		"a field":                {text: "object.metadata.labels.orValue({}).size() > 0", want: "object.metadata.labels.size() > 0"},
		"an optional field":      {text: "object.metadata.?labels.orValue({})", want: "object.metadata.?labels.orValue({})"},
		"after an optional":      {text: "object.?metadata.labels.orValue({})", want: "object.?metadata.labels.orValue({})"},
		"an optional index":      {text: `object.metadata.labels[?"a"].orValue("")`, want: `object.metadata.labels[?"a"].orValue("")`},
		"an index":               {text: `object.metadata.labels["a"].orValue("")`, want: `object.metadata.labels["a"]`},
		"a value of an optional": {text: "object.?spec.value().orValue(1)", want: "object.?spec.value()"},
		"twice":                  {text: "object.?a.orValue(object.b).orValue(1)", want: "object.?a.orValue(object.b)"},
		"within the argument":    {text: "object.a.orValue(object.b.orValue(1)) + object.c.orValue(2)", want: "object.a + object.c"},
		"or":                     {text: "object.?a.or(object.?b).orValue(1)", want: "object.?a.or(object.?b).orValue(1)"},
		"optional.of":            {text: "optional.of(object.a).orValue(1)", want: "optional.of(object.a).orValue(1)"},
		"optMap":                 {text: "object.?a.optMap(x, x.orValue(1) + 1).orValue(2)", want: "object.?a.optMap(x, x + 1).orValue(2)"},
		"a variable":             {text: "variables.plain.orValue({})", want: "variables.plain"},
		"an optional variable":   {text: "variables.optional.orValue({})", want: "variables.optional.orValue({})"},
		"through variables":      {text: "variables.nested.orValue(1)", want: "variables.nested.orValue(1)"},
		"spaces and lines":       {text: "object.a\n  .orValue ( ')' ) == 1", want: "object.a\n   == 1"},
		"after a comment":        {text: "object.a // a\n.orValue(1) == 1", want: "object.a // a\n == 1"},
		"a comment":              {text: "object.a.orValue( // )\n 1) == 1", want: "object.a == 1"},
		"a string":               {text: `".orValue(1)" == object.a.orValue("\")")`, want: `".orValue(1)" == object.a`},
		"triple quotes":          {text: `object.a.orValue("""")""") == 'ü'`, want: `object.a == 'ü'`},
		"raw":                    {text: `object.a.orValue(r"\") == 'ü'`, want: `object.a == 'ü'`},
		"parentheses":            {text: "(object.a || object.b).orValue(true)", want: "(object.a || object.b)"},
		"a condition":            {text: "(true ? object.a : object.b).orValue(1)", want: "(true ? object.a : object.b)"},
		"either": {
			text:      "(object.c ? object.?a : object.b).orValue(1)",
			wantError: "orValue of a value that is an optional only for some requests",
		},
		"an unknown variable": {
			text:      "variables.absent.orValue(1)",
			wantError: "orValue of a value that is an optional only for some requests",
		},
		"an invalid expression": {text: "object.(", want: "object.("},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := WithoutPlainOrValue(tt.text, variables)
			if tt.wantError != "" {
				if err == nil || err.Error() != tt.wantError {
					t.Errorf("got %q and %v, want %s", got, err, tt.wantError)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q and %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestWithoutBind(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"one":     {text: "cel.bind(a, object.spec, a.x == 1) && true", want: "[object.spec].map(a, a.x == 1)[0] && true"},
		"nested":  {text: "cel.bind(a, 1, cel.bind(b, 2, a + b)) == 3", want: "[1].map(a, [2].map(b, a + b)[0])[0] == 3"},
		"in init": {text: "cel.bind(a, cel.bind(b, ',', b), a) == ','", want: "[[','].map(b, b)[0]].map(a, a)[0] == ','"},
		"none":    {text: "cel == 1", want: "cel == 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WithoutBind(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestReplace(t *testing.T) {
	calls := func(text string) string {
		return ReplaceCalls(text, func(c ParsedCall) (string, bool) {
			return "params", c.Name == "resource.Get" && slices.Equal(c.Arguments, []any{"v1", "x"})
		})
	}
	tests := map[string]struct{ got, want string }{
		"a call":               {calls(`resource.Get("v1", "x").data.a == 1`), "params.data.a == 1"},
		"another argument":     {calls(`resource.Get("v1", object.a).data`), `resource.Get("v1", object.a).data`},
		"a bound name":         {calls(`[1].all(resource, resource.Get("v1", "x"))`), `[1].all(resource, resource.Get("v1", "x"))`},
		"two calls":            {calls("resource.Get('v1', 'x') + resource.Get(\n'v1','x')"), "params + params"},
		"a field":              {ReplaceFields("a in exceptions.images", "exceptions", "images", "variables.i"), "a in variables.i"},
		"another field":        {ReplaceFields("a in exceptions.values", "exceptions", "images", "variables.i"), "a in exceptions.values"},
		"a field of something": {ReplaceFields("object.exceptions.images", "exceptions", "images", "variables.i"), "object.exceptions.images"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.got != tt.want {
				t.Errorf("got %q, want %q", tt.got, tt.want)
			}
		})
	}
}

func TestFree(t *testing.T) {
	e, err := Parse("a.all(x, x == b && y) && cel.bind(c, d, c + e) && m.transformList(i, v, i + v + f) && has(g.h) && {'k': j}['k'] && T{field: l}.field")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := e.Free(), []string{"a", "b", "y", "cel", "d", "e", "m", "f", "g", "j", "l"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzRewrite(f *testing.F) {
	for _, text := range []string{
		"object.a.orValue(1)", "cel.bind(a, 1, a)", `"""'""" + r'\'`, "a ? b : c // d",
		"[1].map(x, x)[?0].orValue({'a': 1})",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Parse(text); err != nil {
			return
		}
		changed, err := WithoutPlainOrValue(WithoutBind(text), nil)
		if err != nil {
			return
		}
		if _, err := Parse(changed); err != nil {
			t.Errorf("%q becomes %q: %v", text, changed, err)
		}
	})
}
