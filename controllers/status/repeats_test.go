package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatsMessage(t *testing.T) {
	const want = "applied to its own result, the policy changed the object again, by spec.mutations[0], spec.mutations[3], " +
		"as it may on every update: let a mutation change nothing where its work is done, by its expression or a match condition"
	if got := repeats([]int{0, 3}); got != want {
		t.Errorf("repeats() = %q, want %q", got, want)
	}
}

func TestChecksRunOneAtATimeAndNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Repeats
		ran := 0
		slow := func(ctx context.Context) {
			ran++
			<-ctx.Done()
		}
		start := time.Now()
		r.Later(slow)
		synctest.Wait()
		r.Later(slow)
		synctest.Wait()
		if ran != 1 {
			t.Errorf("%d checks at a time", ran)
		}
		time.Sleep(checkTime)
		synctest.Wait()
		r.Later(slow)
		synctest.Wait()
		if ran != 2 || time.Since(start) != checkTime {
			t.Errorf("%d checks after %s, want a second one after the time of the first", ran, time.Since(start))
		}
		time.Sleep(checkTime)
	})
}
