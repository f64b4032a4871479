package unstructuredjson_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

func TestDecode(t *testing.T) {
	cases := map[string]struct {
		raw  string
		want map[string]any
	}{
		"empty object": {raw: `{}`, want: map[string]any{}},
		"white space":  {raw: " \t\r\n{ } \n", want: map[string]any{}},
		"literals":     {raw: `{"t":true,"f":false,"n":null}`, want: map[string]any{"t": true, "f": false, "n": nil}},
		"empty values": {raw: `{"":"","o":{},"a":[]}`, want: map[string]any{"": "", "o": map[string]any{}, "a": []any{}}},
		"nested": {
			raw:  `{"a":[{"b":[1,[2]]},"c"]}`,
			want: map[string]any{"a": []any{map[string]any{"b": []any{int64(1), []any{int64(2)}}}, "c"}},
		},
		"escapes":            {raw: `{"a\u0062\n":"\"\\\/\ud83d\ude00"}`, want: map[string]any{"ab\n": "\"\\/😀"}},
		"text that is UTF-8": {raw: `{"é":"日本"}`, want: map[string]any{"é": "日本"}},
		"integers": {
			raw: `{"a":0,"b":-0,"c":-1,"d":9223372036854775807,"e":-9223372036854775808}`,
			want: map[string]any{
				"a": int64(0),
				"b": int64(0),
				"c": int64(-1),
				"d": int64(math.MaxInt64),
				"e": int64(math.MinInt64),
			},
		},
		"too big for int64": {raw: `{"a":9223372036854775808}`, want: map[string]any{"a": float64(1 << 63)}},
		"floats": {
			raw:  `{"a":1.0,"b":1e3,"c":-2.5E-1,"d":1e-400}`,
			want: map[string]any{"a": 1.0, "b": 1000.0, "c": -0.25, "d": 0.0},
		},
		"names differ in case": {raw: `{"a":1,"A":2}`, want: map[string]any{"a": int64(1), "A": int64(2)}},
		"duplicate":            {raw: `{"a":1,"b":2,"a":3}`, want: map[string]any{"a": int64(3), "b": int64(2)}},
		"duplicate objects": {
			raw:  `{"a":{"b":1,"c":2},"a":{"b":3}}`,
			want: map[string]any{"a": map[string]any{"b": int64(3)}},
		}, // not merged
		"duplicate, escaped": {raw: `{"ab":1,"a\u0062":2}`, want: map[string]any{"ab": int64(2)}},
		"invalid UTF-8": {
			raw:  "{\"a\":\"b\xff\xe2\x28c\",\"\xc0\xaf\":\"\\n\xff\"}",
			want: map[string]any{"a": "b\ufffd\ufffd(c", "\ufffd\ufffd": "\n\ufffd"},
		},
		"lone surrogates": {
			raw:  `{"a":"\ud800","b":"\udc00x","c":"\ud800\ud83d\ude00","d":"\ud800\u0041"}`,
			want: map[string]any{"a": "\ufffd", "b": "\ufffdx", "c": "\ufffd😀", "d": "\ufffdA"},
		},
		"names that become one": {raw: "{\"\xff\":1,\"\xfe\":2}", want: map[string]any{"\ufffd": int64(2)}},
		"many members": {
			raw: `{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}`,
			want: map[string]any{
				"a": int64(1),
				"b": int64(2),
				"c": int64(3),
				"d": int64(4),
				"e": int64(5),
				"f": int64(6),
				"g": int64(7),
				"h": int64(8),
				"i": int64(9),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := unstructuredjson.Decode([]byte(tc.raw))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	cases := map[string]struct {
		raw  string
		want string
	}{
		"nothing":          {want: `invalid JSON: must be a JSON object; found: nothing (offset 0)`},
		"white space only": {raw: `  `, want: `invalid JSON: must be a JSON object; found: nothing (offset 0)`},
		"null":             {raw: `null`, want: `invalid JSON: must be a JSON object; found: null (offset 0)`},
		"array":            {raw: `[{}]`, want: `invalid JSON: must be a JSON object; found: array (offset 0)`},
		"string":           {raw: `"{}"`, want: `invalid JSON: must be a JSON object; found: string (offset 0)`},
		"number":           {raw: `1`, want: `invalid JSON: must be a JSON object; found: number (offset 0)`},
		"boolean":          {raw: `true`, want: `invalid JSON: must be a JSON object; found: boolean (offset 0)`},
		"not JSON": {
			raw:  `apiVersion: v1`,
			want: `invalid JSON: invalid character 'a' at start of value (offset 0)`,
		},
		"end without start": {raw: `}`, want: `invalid JSON: must be a JSON object; found: } (offset 0)`},
		"two documents": {
			raw:  `{"a":1} {"b":2}`,
			want: `invalid JSON: unexpected data after the object (offset 7)`,
		},
		"garbage after the object": {raw: `{"a":1}x`, want: `invalid JSON: unexpected data after the object (offset 7)`},
		"truncated":                {raw: `{"a":{"b":[1,2`, want: `invalid JSON: unexpected end at "/a/b" (offset 14)`},
		"truncated string":         {raw: `{"a":"b`, want: `invalid JSON: unexpected end at "/a" (offset 7)`},
		"trailing comma": {
			raw:  `{"a":1,}`,
			want: `invalid JSON: invalid character ',' at start of value (offset 6)`,
		},
		"single quotes": {raw: `{'a':1}`, want: `invalid JSON: invalid character '\'' at start of value (offset 1)`},
		"name that is no string": {
			raw:  `{"a":{1:2}}`,
			want: `invalid JSON: object member name must be a string at "/a" (offset 6)`,
		},
		"value missing": {raw: `{"a":}`, want: `invalid JSON: missing value after object name at "/a" (offset 5)`},
		"wrong bracket": {
			raw:  `{"a":[1}}`,
			want: `invalid JSON: invalid character '}' after array element (expecting ',' or ']') at "/a" (offset 7)`,
		},
		"number too big": {
			raw:  `{"a":{"b":[0,1e400]}}`,
			want: `invalid JSON: number does not fit into 64 bits at "/a/b/1" (offset 13)`,
		},
		"number with leading zero": {
			raw:  `{"a":01}`,
			want: `invalid JSON: invalid character '1' after object value (expecting ',' or '}') (offset 6)`,
		},
		"NaN": {
			raw:  `{"a":NaN}`,
			want: `invalid JSON: invalid character 'N' at start of value at "/a" (offset 5)`,
		},
		"control character": {
			raw:  "{\"a\":\"\n\"}",
			want: `invalid JSON: invalid character '\n' in string (expecting non-control character) at "/a" (offset 6)`,
		},
		"unknown escape": {
			raw:  `{"a":"\x"}`,
			want: "invalid JSON: invalid escape sequence `\\x` in string at \"/a\" (offset 6)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := unstructuredjson.Decode([]byte(tc.raw))
			if err == nil {
				t.Fatalf("decoded to %v, want the error %q", got, tc.want)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var located *unstructuredjson.Error
			if !errors.As(err, &located) {
				t.Errorf("error is a %T, want a *jsontree.Error", err)
			}
		})
	}
}

func TestDecodeDepth(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":`, depth-1) + `{}` + strings.Repeat(`}`, depth-1))
	}
	if _, err := unstructuredjson.Decode(nested(10000)); err != nil {
		t.Errorf("10,000 deep: %v", err)
	}
	for name, raw := range map[string][]byte{
		"objects":    nested(10001),
		"arrays":     []byte(`{"a":` + strings.Repeat(`[`, 10000) + strings.Repeat(`]`, 10000) + `}`),
		"unfinished": []byte(strings.Repeat(`{"a":`, 1_000_000)),
	} {
		_, err := unstructuredjson.Decode(raw)
		if err == nil || !strings.Contains(err.Error(), "exceeded max depth") {
			t.Errorf("%s, 10,001 deep: error %v, want one that says so", name, err)
		} else if len(err.Error()) > 512 {
			t.Errorf("%s: the error has %d bytes, want at most 512", name, len(err.Error()))
		}
	}
}

// TestDecodersAreReusedConcurrently decodes on reused decoders, also after failures, and checks that later inputs do not change
// earlier trees.
func TestDecodersAreReusedConcurrently(t *testing.T) {
	pod := readFile(t, "testdata/pod.json")
	var want map[string]any
	if err := utiljson.Unmarshal(pod, &want); err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 50 {
				raw := bytes.Clone(pod)
				got, err := unstructuredjson.Decode(raw)
				if err != nil {
					t.Error(err)
					return
				}
				clear(raw)
				if _, err := unstructuredjson.Decode([]byte(`{"x":[{"y":1},{"z":`)); err == nil {
					t.Error("truncated JSON was decoded")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("tree (-want +got):\n%s", diff)
					return
				}
			}
		})
	}
	callers.Wait()
}

func TestDecodeDoesNotChangeItsInput(t *testing.T) {
	raw := readFile(t, "testdata/pod.json")
	before := bytes.Clone(raw)
	if _, err := unstructuredjson.Decode(raw); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, raw) {
		t.Error("the input was changed")
	}
}

// FuzzDecode compares with the API server's decoder: the same trees, and the same rejections.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,2.5,-0,1e3,"x",null,true,{}]}`, `{"a":9223372036854775808}`, `{"a":1,"a":2}`, `{"a":"\ud83d\ude00\n"}`,
		`{"a":"\ud800"}`, `{"a":"\ud800\ud800\udc00\u0041"}`, "{\"a\":\"\xff\"}", "{\"\xff\\n\":\"\xe2\x28\xa1\"}", `{"a":{"b":1},"a":{"c":2}}`,
		`{"a":1e400}`, `{"a":01}`, `{"a":[}`, `null`, ``, `{"a":1}{}`, `{"a":-9223372036854775809,"b":1.0,"c":1E2,"d":-0.0}`,
		`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"a","ports":[{"containerPort":8080}],"resources":{}}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(compare)
}

func compare(t *testing.T, raw []byte) {
	got, err := unstructuredjson.Decode(raw)
	var want map[string]any
	wantErr := utiljson.Unmarshal(raw, &want)
	switch {
	case err == nil && wantErr != nil:
		t.Fatalf("decoded %q, which Kubernetes refuses: %v", raw, wantErr)
	case err == nil && !reflect.DeepEqual(want, got):
		t.Fatalf("%q: tree (-kubernetes +got):\n%s", raw, cmp.Diff(want, got))
	case err != nil && wantErr == nil && want != nil:
		t.Fatalf("%q: refused what Kubernetes decodes: %v", raw, err)
	}
}

// TestDecodeRandom compares random JSON with duplicates, invalid text, numbers and nesting.
func TestDecodeRandom(t *testing.T) {
	const seed = 14
	random := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		var b bytes.Buffer
		randomValue(random, &b, 0)
		raw := b.Bytes()
		if random.IntN(4) == 0 && len(raw) > 2 {
			raw[1+random.IntN(len(raw)-2)] = byte(random.Uint32())
		}
		compare(t, append(append([]byte(`{"a":`), raw...), '}'))
	}
	for depth := 9_998; depth <= 10_002; depth++ {
		compare(t, []byte(strings.Repeat(`{"a":[`, depth/2)+strings.Repeat(`[`, depth%2)+strings.Repeat(`]`,
			depth%2)+strings.Repeat(`]}`, depth/2)))
	}
}

func randomValue(random *rand.Rand, b *bytes.Buffer, depth int) {
	kind := random.IntN(8)
	if depth > 6 {
		kind = 2 + random.IntN(6)
	}
	switch kind {
	case 0, 1:
		open, end := "[", "]"
		if kind == 0 {
			open, end = "{", "}"
		}
		b.WriteString(open)
		for i := range random.IntN(12) {
			if i > 0 {
				b.WriteByte(',')
			}
			if kind == 0 {
				randomString(random, b)
				b.WriteByte(':')
			}
			randomValue(random, b, depth+1)
		}
		b.WriteString(end)
	case 2:
		b.WriteString([]string{"null", "true", "false", " {} ", "[]", `""`}[random.IntN(6)])
	case 3:
		numbers := []string{
			"0", "-0", "1", "-1", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
			"1e3", "1E-3", "0.1", "-0.0", "1e308", "1e309", "123456789012345678901234567890", "1.0",
		}
		b.WriteString(numbers[random.IntN(len(numbers))])
	default:
		randomString(random, b)
	}
}

func randomString(random *rand.Rand, b *bytes.Buffer) {
	parts := []string{
		"a", "b", "ab", "", `\n`, `\u0061`, `\ud800`, `\udc00`, `\ud83d\ude00`, `\ufffd`, "\xff", "\xe2\x28", "\xf0\x9f",
		"é", "\u2028", `\u003c`, `\\`, `\"`, `\/`, "metadata",
	}
	b.WriteByte('"')
	for range random.IntN(4) {
		b.WriteString(parts[random.IntN(len(parts))])
	}
	b.WriteByte('"')
}
