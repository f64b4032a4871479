package status

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/policy"
)

func TestRepeatsMessage(t *testing.T) {
	const want = "mutations are not idempotent: spec.mutations[0], spec.mutations[3] changed an object that the policy had mutated before: " +
		"add a match condition, or an expression that leaves such objects unchanged"
	if got := repeatsMessage([]int{0, 3}); got != want {
		t.Errorf("repeatsMessage() = %q, want %q", got, want)
	}
}

func TestChecksRunOneAtATimeAndNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r RuntimeReporter
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

// onePolicy is an API server that holds one policy, whose conditions each have
// one field manager.
type onePolicy struct {
	client.Client
	policy *v1alpha1.WebhookPolicy
	writes int
}

func (o *onePolicy) Get(_ context.Context, _ client.ObjectKey, out client.Object, _ ...client.GetOption) error {
	*out.(*v1alpha1.WebhookPolicy) = *o.policy.DeepCopy()
	return nil
}

func (o *onePolicy) Status() client.SubResourceWriter { return onePolicyStatus{onePolicy: o} }

type onePolicyStatus struct {
	client.SubResourceWriter
	*onePolicy
}

func (o onePolicyStatus) Apply(_ context.Context, config runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	o.writes++
	var options client.SubResourceApplyOptions
	options.ApplyOpts(opts)
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	var applied v1alpha1.WebhookPolicy
	if err := json.Unmarshal(text, &applied); err != nil {
		return err
	}
	if options.FieldManager == panicsManager {
		meta.RemoveStatusCondition(&o.policy.Status.Conditions, v1alpha1.ConditionPanicking)
	}
	o.policy.Status.Conditions = append(o.policy.Status.Conditions, applied.Status.Conditions...)
	return nil
}

// TestPanicking: the condition comes with a panic, further panics write nothing,
// and the leader removes it after five minutes, as does one that has just started.
// It comes back with the next panic.
func TestPanicking(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	api := &onePolicy{policy: newPolicy()}
	api.policy.Generation, api.policy.Status.ObservedGeneration = 2, 2
	recorder := events.NewFakeRecorder(10)
	replica := &RuntimeReporter{Client: api, Events: recorder, Clock: clock, Replica: "manager-1"}
	leader := &Reconciler{Client: api, Store: &policies.Store{}, Events: recorder, Clock: clock}
	const message = "an evaluation panicked on replica manager-1, and failurePolicy was applied to its request: report the stack trace in the log of that replica"

	for _, step := range []struct {
		name       string
		after      time.Duration
		panics     bool
		restarts   bool // the leader
		generation int64
		want       bool
		wantEvents int
		wantWrites int
		wantLook   time.Duration // when the leader looks again
	}{
		{name: "no panic"},
		{name: "a panic", panics: true, want: true, wantEvents: 1, wantWrites: 1, wantLook: panicsShown},
		{name: "another", after: time.Second, panics: true, want: true, wantLook: panicsShown - time.Second},
		{name: "another, later", after: panicsShown - 3*time.Second, panics: true, want: true, wantLook: 2 * time.Second},
		{name: "none for a while", after: time.Second, want: true, wantLook: time.Second},
		{name: "a restart of the leader", restarts: true, want: true, wantLook: time.Second},
		{name: "its time is over", after: time.Second, wantWrites: 1},
		{name: "a panic again", panics: true, want: true, wantEvents: 1, wantWrites: 1, wantLook: panicsShown},
		{name: "a restart, long after", after: time.Hour, restarts: true, wantWrites: 1},
		{name: "a panic before a change", panics: true, want: true, wantEvents: 1, wantWrites: 1, wantLook: panicsShown},
		{name: "the next generation", generation: 3, wantWrites: 1},
		{name: "a clock that is ahead", after: -time.Hour, panics: true, want: true, wantEvents: 1, wantWrites: 1, wantLook: panicsShown},
		{name: "and is corrected", after: -time.Hour, wantWrites: 1},
	} {
		clock.SetTime(clock.Now().Add(step.after))
		if step.generation > 0 {
			api.policy.Generation, api.policy.Status.ObservedGeneration = step.generation, step.generation
		}
		if step.restarts {
			leader = &Reconciler{Client: api, Store: &policies.Store{}, Events: recorder, Clock: clock}
		}
		api.writes = 0
		if step.panics {
			replica.Panicked(policy.PanicReport{Policy: api.policy.Name, UID: api.policy.UID, Generation: api.policy.Generation})
			if _, err := replica.Reconcile(t.Context(), request(api.policy.Name)); err != nil {
				t.Fatal(err)
			}
		}
		result, err := leader.Reconcile(t.Context(), request(api.policy.Name))
		if err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(api.policy.Status.Conditions, v1alpha1.ConditionPanicking)
		if (c != nil) != step.want || c != nil && (c.Status != metav1.ConditionTrue || c.Reason != ReasonPanicked || c.Message != message) {
			t.Errorf("%s: the condition is %+v, want one: %t", step.name, c, step.want)
		}
		if len(recorder.Events) != step.wantEvents || api.writes != step.wantWrites || result.RequeueAfter != step.wantLook {
			t.Errorf("%s: %d events, %d writes, looks again after %s; want %d, %d, %s", step.name,
				len(recorder.Events), api.writes, result.RequeueAfter, step.wantEvents, step.wantWrites, step.wantLook)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}
