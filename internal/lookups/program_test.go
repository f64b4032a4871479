package lookups_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/lookups"
)

func TestEntry(t *testing.T) {
	object := func(spec map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "a", "namespace": "n"}, "spec": spec}
	}
	hosts := func(hosts ...any) map[string]any { return object(map[string]any{"hosts": hosts}) }
	long := strings.Repeat("x", lookups.MaxKey+1)
	many := make([]any, lookups.MaxKeys+1)
	for i := range many {
		many[i] = "x"
	}
	large := make([]any, 70)
	for i := range large {
		large[i] = strings.Repeat("x", lookups.MaxKey)
	}
	tests := map[string]struct {
		keys, value string
		object      map[string]any
		want        lookups.Entry
		wantErr     string // a part of it
	}{
		"keys are sorted and each is there once": {
			keys: "stored.spec.hosts", object: hosts("b", "a", "b"), want: lookups.Entry{Keys: []string{"a", "b"}},
		},
		"no keys":      {keys: "[]", value: "stored.no", object: hosts("a")},
		"an empty key": {keys: `[""]`, object: hosts(), want: lookups.Entry{Keys: []string{""}}},
		"labels of a selector": {
			keys: `stored.spec.map(k, k + "=" + stored.spec[k])`, object: object(map[string]any{"app": "x"}),
			want: lookups.Entry{Keys: []string{"app=x"}},
		},
		"a value": {
			keys: `["k"]`, object: hosts("h"),
			value: `{"b": stored.spec.hosts, "a": dyn({"n": dyn(1), "d": dyn(1.0), "t": dyn(true), "x": dyn(null)})}`,
			want:  lookups.Entry{Keys: []string{"k"}, Value: `{"a":{"d":1.0,"n":1,"t":true,"x":null},"b":["h"]}`},
		},
		"a value that is a text": {
			keys: `["k"]`, value: `stored.metadata.name`, object: hosts(),
			want: lookups.Entry{Keys: []string{"k"}, Value: `"a"`},
		},
		"a field is not there":  {keys: "stored.spec.no", object: hosts(), wantErr: "storedKeys: no such key: no"},
		"a value without field": {keys: `["k"]`, value: "stored.spec.no", object: hosts(), wantErr: "value: no such key: no"},
		"no list": {
			keys: "stored.metadata.name", object: hosts(),
			wantErr: "storedKeys: the result is no list but a value of type string: write one key as [key]",
		},
		"no strings": {
			keys: "stored.spec.hosts", object: hosts(int64(1)),
			wantErr: "storedKeys: a key is no string but a value of type int",
		},
		"a long key": {keys: "stored.spec.hosts", object: hosts(long), wantErr: "storedKeys: a key has 1025 bytes, more than 1024"},
		"many keys":  {keys: "stored.spec.hosts", object: hosts(many...), wantErr: "storedKeys: the list has more than 1000 keys"},
		"large keys": {
			keys: "stored.spec.hosts", object: hosts(large...),
			wantErr: "storedKeys: the keys have more than 65536 bytes together",
		},
		"a large value": {
			keys: `["k"]`, value: "stored", object: hosts(large...),
			wantErr: "value: the value has more than 1024 bytes as JSON",
		},
		"a value of many parts": {
			keys: `["k"]`, value: "stored.spec.hosts.map(h, [h])", object: hosts(many...),
			wantErr: "value: the value has more than 1024 bytes as JSON",
		},
		"a costly expression": {
			keys: "stored.spec.hosts.filter(h, stored.spec.hosts.all(g, stored.spec.hosts.all(f, f == g)))", object: hosts(many...),
			wantErr: "storedKeys: operation cancelled: actual cost limit exceeded",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := compiled(t, tc.keys, tc.value).Entry(t.Context(), tc.object)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if tc.wantErr == "" && err != nil || tc.wantErr != "" && (err == nil || !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("got the error %v, want %q", err, tc.wantErr)
			}
		})
	}
}

// TestEntryEnds: the evaluation of an object ends with its context.
func TestEntryEnds(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	many := make([]any, lookups.MaxKeys)
	for i := range many {
		many[i] = "x"
	}
	_, err := compiled(t, "stored.list.map(x, x)", "").Entry(canceled, map[string]any{"list": many})
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got the error %v", err)
	}
}

func TestCompile(t *testing.T) {
	tests := map[string]struct {
		keys, value  string
		wantErrors   []string // fields and parts of messages
		wantElement  string
		wantMetadata bool
	}{
		"the default value": {keys: "[stored.metadata.name]", wantElement: "map(string, string)", wantMetadata: true},
		"a dynamic value":   {keys: "stored.spec.hosts", value: "stored.spec", wantElement: "dyn"},
		"a text":            {keys: "[string(stored.spec.x)]", value: `stored.metadata.name + "x"`, wantElement: "string"},
		"an empty list":     {keys: "[]", value: "[]", wantElement: "list(dyn)", wantMetadata: true},
		"keys that are a text": {
			keys:       "string(stored.metadata.name)",
			wantErrors: []string{"spec.lookups[0].storedKeys", "must evaluate to list(string) but got string: write one key as [key]"},
		},
		"keys that are numbers":         {keys: "[1]", wantErrors: []string{"spec.lookups[0].storedKeys", "but got list(int)"}},
		"an entry that is not optional": {keys: "[?stored.x]", wantErrors: []string{"storedKeys", "compilation failed: "}},
		"keys of a request": {
			keys: "[object.x]", wantErrors: []string{"spec.lookups[0].storedKeys", "undeclared reference to 'object'"},
		},
		"a value of bytes": {
			keys: "[]", value: `[b"x"]`,
			wantErrors: []string{"spec.lookups[0].value", "type bytes, which JSON does not have"},
		},
		"a map of numbers": {keys: "[]", value: `{1: 2}`, wantErrors: []string{"spec.lookups[0].value", "use strings as keys"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := &v1alpha1.Lookup{StoredKeys: tc.keys, Value: tc.value}
			p, errs := lookups.Compile(compiler, l, field.NewPath("spec", "lookups").Index(0))
			if len(tc.wantErrors) > 0 {
				for _, part := range tc.wantErrors {
					if text := errs.ToAggregate(); text == nil || !strings.Contains(text.Error(), part) {
						t.Errorf("got %v, want %q", text, part)
					}
				}
				return
			}
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := p.Element().String(); !strings.HasPrefix(got, tc.wantElement) {
				t.Errorf("the elements have type %s, want %s", got, tc.wantElement)
			}
			if got := p.ReadsOnlyMetadata(); got != tc.wantMetadata {
				t.Errorf("ReadsOnlyMetadata is %t", got)
			}
		})
	}
}

// TestDecode: values have the types that they had in CEL.
func TestDecode(t *testing.T) {
	p := compiled(t, `["k"]`, `{"int": dyn(1), "double": dyn(1.0),
		"large": dyn(1e300), "null": dyn(null), "list": dyn(["x"]), "map": dyn({"a": true})}`)
	e, err := p.Entry(t.Context(), map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := lookups.Value{JSON: e.Value}.Decode()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"int": int64(1), "double": 1.0, "large": 1e300, "null": nil, "list": []any{"x"}, "map": map[string]any{"a": true}}
	if diff := cmp.Diff(any(want), got); diff != "" {
		t.Error(diff)
	}
}

// FuzzEntry: whatever an object is, an entry is within the bounds, and nothing panics.
func FuzzEntry(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec": {"rules": [{"host": "a"}, {}]}}`, `{"spec": {"rules": 1}}`, `{"metadata": {"labels": {"a": null}}}`,
	} {
		f.Add([]byte(seed))
	}
	var programs []*lookups.Program
	for keys, value := range map[string]string{
		`stored.spec.?rules.orValue([]).map(r, r.?host.orValue(""))`:         "stored.spec",
		`stored.metadata.labels.map(k, k + "=" + stored.metadata.labels[k])`: "",
		`stored.spec.map(k, string(stored.spec[k]))`:                         "stored",
	} {
		p, errs := lookups.Compile(compiler, &v1alpha1.Lookup{StoredKeys: keys, Value: value}, field.NewPath("lookup"))
		if len(errs) > 0 {
			f.Fatal(errs)
		}
		programs = append(programs, p)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var object map[string]any
		if err := utiljson.Unmarshal(text, &object); err != nil || object == nil {
			return
		}
		for _, p := range programs {
			e, err := p.Entry(t.Context(), object)
			if err != nil {
				continue
			}
			if len(e.Keys) > lookups.MaxKeys || e.Size() > lookups.MaxKeyBytes+lookups.MaxValue || !slices.IsSorted(e.Keys) {
				t.Errorf("%d keys with %d bytes", len(e.Keys), e.Size())
			}
			if _, err := (lookups.Value{JSON: e.Value}).Decode(); err != nil {
				t.Error(err)
			}
		}
	})
}

var compiler = celengine.NewCompiler(celengine.LatestEngine)

func compiled(t *testing.T, keys, value string) *lookups.Program {
	t.Helper()
	p, errs := lookups.Compile(compiler, &v1alpha1.Lookup{StoredKeys: keys, Value: value}, field.NewPath("lookup"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}
