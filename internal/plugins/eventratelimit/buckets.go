package eventratelimit

import (
	"cmp"
	"crypto/sha256"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxKey is the maximum length of a stored key, in bytes. Longer keys are stored as a
// hash. The author of an event chooses most of the key.
const maxKey = 64

// buckets holds the buckets of one limit, by key. The tokens are those of the library of
// the native plugin. The lock of the LRU is held only during a lookup.
type buckets struct {
	limit  rate.Limit
	burst  int
	single *rate.Limiter // for all keys
	byKey  *lru.Cache
	adding sync.Mutex
}

func newBuckets(l Limit) *buckets {
	b := &buckets{limit: rate.Limit(l.QPS), burst: int(l.Burst)}
	if l.Type == Server {
		b.single = b.full()
		return b
	}
	b.byKey = lru.New(int(cmp.Or(l.CacheSize, defaultCacheSize)))
	return b
}

func (b *buckets) full() *rate.Limiter { return rate.NewLimiter(b.limit, b.burst) }

// of returns the bucket of a key. Concurrent requests get the same one.
func (b *buckets) of(key string) *rate.Limiter {
	if b.single != nil {
		return b.single
	}
	short := bounded(key)
	if found := b.find(short); found != nil {
		return found
	}
	b.adding.Lock()
	defer b.adding.Unlock()
	if found := b.find(short); found != nil {
		return found
	}
	made := b.full()
	b.byKey.Add(short, made)
	return made
}

func (b *buckets) find(key lru.Key) *rate.Limiter {
	found, _ := b.byKey.Get(key)
	bucket, _ := found.(*rate.Limiter)
	return bucket
}

// bounded returns the key in the cache. Hashes have another type than short keys, so that
// no short key equals a hash.
func bounded(key string) lru.Key {
	if len(key) > maxKey {
		return sha256.Sum256([]byte(key))
	}
	return key
}
