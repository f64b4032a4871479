package rollout

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
)

// maxKept is the number of smallest hashes that a Sketch keeps. Up to it, a count is exact; beyond, it is an estimate whose
// standard error is 13 %.
const maxKept = 64

// Sketch counts distinct texts in bounded memory. The zero value is empty. Two of them can be merged, because they keep
// the smallest hashes, sorted.
type Sketch []uint64

// Add adds a text, and reports whether that changes the sketch. The argument must not be used afterwards.
func (s Sketch) Add(text string) (out Sketch, isChanged bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return s.with(mixed(h.Sum64()))
}

// mixed spreads a hash over all values: those of similar short texts are close to each other.
func mixed(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func (s Sketch) with(hash uint64) (out Sketch, isChanged bool) {
	at, found := slices.BinarySearch(s, hash)
	if found || at == maxKept {
		return s, false
	}
	s = slices.Insert(s, at, hash)
	return s[:min(len(s), maxKept)], true
}

// Merge adds the texts of another sketch.
func (s Sketch) Merge(o Sketch) Sketch {
	for _, hash := range o {
		s, _ = s.with(hash)
	}
	return s
}

// Count returns the number of distinct texts, and whether it is an estimate.
func (s Sketch) Count() (n int64, isEstimate bool) {
	if len(s) < maxKept {
		return int64(len(s)), false
	}
	return int64(float64(maxKept-1) / (float64(s[maxKept-1]) / math.MaxUint64)), true
}

// String returns the sketch as text without spaces.
func (s Sketch) String() string {
	raw := make([]byte, 0, 8*len(s))
	for _, hash := range s {
		raw = binary.BigEndian.AppendUint64(raw, hash)
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}

// ParseSketch reads what String returns. It returns false for another text.
func ParseSketch(text string) (s Sketch, ok bool) {
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(raw)%8 != 0 || len(raw) > 8*maxKept {
		return nil, false
	}
	for ; len(raw) > 0; raw = raw[8:] {
		s, _ = s.with(binary.BigEndian.Uint64(raw))
	}
	return s, true
}
