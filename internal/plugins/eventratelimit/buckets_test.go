package eventratelimit

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestBounded: whatever events say, buckets are as many as the limit allows, and
// what is kept of each is small.
func TestBounded(t *testing.T) {
	tests := map[string]struct {
		size int32
		key  string
		want int
	}{
		"default":   {key: "a", want: defaultCacheSize},
		"own size":  {size: 100, key: "a", want: 100},
		"long keys": {size: 2000, key: strings.Repeat("a", 4<<10), want: 2000},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBuckets(Limit{Type: SourceAndObject, QPS: 1, Burst: 1, CacheSize: tc.size})
			before := heap()
			for i := range 5000 { // as many as come in a second
				b.of(fmt.Sprint(tc.key, i)).AllowN(time.Now(), 1)
			}
			if n := b.byKey.Len(); n != tc.want {
				t.Errorf("%d buckets, want %d", n, tc.want)
			}
			const each = 1 << 10 // bytes
			if grown := heap() - before; grown > int64(tc.want)*each {
				t.Errorf("%d buckets take %d bytes, more than %d each", tc.want, grown, each)
			}
			runtime.KeepAlive(b)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestKeysThatAreLong(t *testing.T) {
	b := newBuckets(Limit{Type: User, QPS: 1, Burst: 1})
	long := strings.Repeat("a", maxKey)
	for _, key := range []string{long, long + "b", long + "c"} {
		if !b.of(key).AllowN(time.Now(), 1) || b.of(key).AllowN(time.Now(), 1) {
			t.Errorf("the key %s shares its bucket with another, or has several", key)
		}
	}
}
