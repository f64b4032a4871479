package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ostiary/ostiary/internal/policy"
)

func TestChecksRunOneAtATimeAndNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r RuntimeReporter
		ran := 0
		slow := func(ctx context.Context) {
			ran++
			<-ctx.Done()
		}
		start := time.Now()
		r.CheckInBackground(slow)
		synctest.Wait()
		r.CheckInBackground(slow)
		synctest.Wait()
		if ran != 1 {
			t.Errorf("%d checks at a time", ran)
		}
		time.Sleep(checkTimeout)
		synctest.Wait()
		r.CheckInBackground(slow)
		synctest.Wait()
		if ran != 2 || time.Since(start) != checkTimeout {
			t.Errorf("%d checks after %s, want a second one after the time of the first", ran, time.Since(start))
		}
		time.Sleep(checkTimeout)
	})
}

// TestRuntimeEvents: one event for each generation and reason, and again after
// reportInterval.
func TestRuntimeEvents(t *testing.T) {
	const (
		panicked = "Warning Panicked an evaluation panicked on replica manager-1, and failurePolicy decided the request; " +
			"other requests are evaluated: report the stack in the log of that replica"
		notIdempotent = "Warning NotIdempotent spec.mutations[0], spec.mutations[3] changed the object again when applied to its own result, " +
			"and may change it on every update: change the expression, or add a match condition, so that it changes nothing the second time"
	)
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	recorder := events.NewFakeRecorder(10)
	r := &RuntimeReporter{Events: recorder, Clock: clock, Replica: "manager-1"}
	for _, step := range []struct {
		name       string
		after      time.Duration
		uid        types.UID
		generation int64
		repeats    bool
		want       string
	}{
		{name: "a panic", uid: "u", generation: 1, want: panicked},
		{name: "another", after: time.Second, uid: "u", generation: 1},
		{name: "not idempotent", uid: "u", generation: 1, repeats: true, want: notIdempotent},
		{name: "not idempotent again", uid: "u", generation: 1, repeats: true},
		{name: "a panic of another policy", uid: "v", generation: 1, want: panicked},
		{name: "a panic of the next generation", uid: "u", generation: 2, want: panicked},
		{name: "a panic before the interval ends", after: reportInterval - 2*time.Second, uid: "u", generation: 1},
		{name: "a panic after the interval", after: time.Second, uid: "u", generation: 1, want: panicked},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		if step.repeats {
			r.ReportNotIdempotent(policy.Repeat{Policy: "p", UID: step.uid, Generation: step.generation, Mutations: []int{0, 3}})
		} else {
			r.ReportPanic(policy.PanicReport{Policy: "p", UID: step.uid, Generation: step.generation})
		}
		got := ""
		if len(recorder.Events) > 0 {
			got = <-recorder.Events
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	clock.SetTime(clock.Now().Add(reportInterval))
	r.ReportPanic(policy.PanicReport{Policy: "p", UID: "w"})
	if len(r.reported) != 1 {
		t.Errorf("%d reports are kept after the interval, want the last one", len(r.reported))
	}
}
