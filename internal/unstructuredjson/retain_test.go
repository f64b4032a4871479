package unstructuredjson

import (
	"reflect"
	"runtime"
	"testing"
)

// TestRetain checks that a copy is equal, does not keep the JSON alive, and needs at most
// the estimated size.
func TestRetain(t *testing.T) {
	const size, rounding = 1 << 20, 64 << 10
	for name, text := range worst(size) {
		t.Run(name, func(t *testing.T) {
			tree, err := Decode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			before := heapInUse()
			retained, counted := Retain(tree)
			held := heapInUse() - before
			if counted+rounding < held {
				t.Errorf("counted as %d bytes, want at least %d", counted, held)
			}
			if !reflect.DeepEqual(tree, retained) {
				t.Error("the copy differs")
			}
			runtime.KeepAlive(tree)
		})
	}
}

// TestRetainFreesTheRest checks that a part of an object does not keep the object alive.
func TestRetainFreesTheRest(t *testing.T) {
	const size, objects = 1 << 20, 16
	before := heapInUse()
	kept := make([]map[string]any, 0, objects)
	var counted int64
	for range objects {
		tree, err := DecodeParts([]byte(`{"b":"x","a":"`+worst(size)["text"][6:]), Path("b"))
		if err != nil {
			t.Fatal(err)
		}
		retained, bytes := Retain(tree)
		kept, counted = append(kept, retained), counted+bytes
	}
	if held := heapInUse() - before; held > size || counted > objects*1024 {
		t.Errorf("%d parts are counted as %d bytes and hold %d", objects, counted, held)
	}
	runtime.KeepAlive(kept)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second empties pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
