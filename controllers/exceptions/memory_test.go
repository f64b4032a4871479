package exceptions

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// many puts so many exceptions, each with the fields of the example in the documents, into a store.
func many(t *testing.T, s *Store, n int) {
	t.Helper()
	for i := range n {
		object := raw(fmt.Sprintf("namespace-%04d", i%1000), fmt.Sprintf("exception-%05d", i), i%500, `"expirationTime":"2027-03-01T00:00:00Z"`)
		match := fmt.Sprintf(`[{"group":"apps","resources":["deployments"],"names":["web-%d"]},`+
			`{"group":"","resources":["pods"],"objectSelector":{"matchLabels":{"app":"web-%d"}}}]`, i, i)
		object = bytes.Replace(object, []byte(`[{"group":"","resources":["pods"]}]`), []byte(match), 1)
		object = bytes.Replace(object, []byte(`"policyName":"p"`), fmt.Appendf(nil, `"policyName":"policy-%04d"`, i%1000), 1)
		if err := s.collections[0].Put(object, true); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemory bounds what a replica keeps of an exception without a condition.
func TestMemory(t *testing.T) {
	const n, most = 10_000, 1536
	s, err := NewStore(Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	many(t, s, n)
	each := (heap() - before) / n
	if each > most || int64(each) > s.used/n {
		t.Errorf("an exception takes %d bytes, at most %d are allowed and %d are counted", each, most, s.used/n)
	}
	runtime.KeepAlive(s)
}
