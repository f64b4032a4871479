package queue

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkLimiter takes and frees slots while enough are free, and while callers wait.
func BenchmarkLimiter(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			l := New(8, 1000)
			b.ReportAllocs()
			b.SetParallelism((callers + 1) / 2)
			var started atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				flow := tenant(strconv.FormatInt(started.Add(1), 10))
				for pb.Next() {
					slot, err := l.Acquire(b.Context(), flow, time.Minute)
					if err != nil {
						b.Error(err)
						return
					}
					slot.Release()
				}
			})
		})
	}
}
