package eventratelimit

import (
	"cmp"
	"crypto/sha256"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// maxKey bounds, in bytes, what is kept of a key: of a longer one only its hash
// is. Whoever writes an event chooses most of the key, and its length.
const maxKey = 64

// buckets are the buckets of one limit, by key. The tokens are those of the
// library that the API server's own plugin uses. The lock of the LRU is held for
// as long as it takes to find an entry of a map.
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

// of is the bucket of a key. Two requests that come at once find the same one.
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

// bounded is the key in the cache: hashes are of another type than short keys,
// so that nobody finds a short one that equals a hash.
func bounded(key string) lru.Key {
	if len(key) > maxKey {
		return sha256.Sum256([]byte(key))
	}
	return key
}
