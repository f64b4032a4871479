package weakcache

import (
	"runtime"
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	cache := New[string, [64]int]()
	created := 0
	create := func() *[64]int {
		created++
		return new([64]int)
	}
	first := cache.Get("a", create)
	if again := cache.Get("a", create); again != first || created != 1 {
		t.Errorf("got another value for the same key, %d were created", created)
	}
	if other := cache.Get("b", create); other == first || created != 2 {
		t.Errorf("got the value of another key, %d were created", created)
	}
	runtime.KeepAlive(first)
	deadline := time.Now().Add(20 * time.Second)
	for cache.Len() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d unused values are kept", cache.Len())
		}
		runtime.GC()
		time.Sleep(time.Millisecond) // clean-ups run after a collection
	}
	if cache.Get("a", create); created != 3 {
		t.Errorf("%d values were created, want a new one for a key that was forgotten", created)
	}
}
