package audit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, start := newBudget(), time.Now()
		const work, requests = 10 * time.Second, 100
		if err := b.spend(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		took, want := time.Since(start).Seconds(), (work-burst).Seconds()/share
		if took < want*0.999 || took > want*1.001 {
			t.Errorf("%v of work took %v s, want %v", work, took, want)
		}
		start = time.Now()
		for range requests {
			if err := b.request(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		took, want = time.Since(start).Seconds(), float64(requests-requestBurst)/requestRate
		if took < want*0.999 || took > want*1.001 {
			t.Errorf("%d requests took %v s, want %v", requests, took, want)
		}
	})
}
