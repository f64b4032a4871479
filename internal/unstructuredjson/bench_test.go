package unstructuredjson_test

import (
	"os"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// BenchmarkDecodePod decodes a pod as the API server sends it, here and with what Kubernetes uses, in one run.
func BenchmarkDecodePod(b *testing.B) {
	raw := readFile(b, "testdata/pod.json")
	b.Run("jsontree", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := unstructuredjson.Decode(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kubernetes", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		for b.Loop() {
			var tree map[string]any
			if err := utiljson.Unmarshal(raw, &tree); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func readFile(tb testing.TB, path string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
