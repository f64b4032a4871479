package status

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientevents "k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/policy"
)

const (
	// checkTimeout bounds one check of a request's mutations.
	checkTimeout = time.Second
	// reportInterval is half of the time for which API servers keep events by default.
	reportInterval = 30 * time.Minute
)

// RuntimeReporter records events of policies whose mutations are not idempotent or
// whose evaluation panics. Every replica runs one. It is safe for concurrent use.
type RuntimeReporter struct {
	Events clientevents.EventRecorder
	Clock  clock.PassiveClock
	// Replica is the name of this replica.
	Replica string

	checking atomic.Bool

	mu       sync.Mutex
	reported map[report]time.Time // when the event was recorded
}

// report identifies an event of one generation of a policy.
type report struct {
	uid        types.UID
	generation int64
	reason     string
}

// CheckInBackground runs a check concurrently with the requests, for at most a
// second. It drops the check while another one runs, so that checks never use more
// than one processor.
func (r *RuntimeReporter) CheckInBackground(check func(ctx context.Context)) {
	if !r.checking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer r.checking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		check(ctx)
	}()
}

// ReportNotIdempotent records an event for a policy that is not idempotent.
func (r *RuntimeReporter) ReportNotIdempotent(found policy.Repeat) {
	r.record(found.Policy, report{found.UID, found.Generation, ReasonNotIdempotent}, "Check", notIdempotentMessage(found.Mutations))
}

// ReportPanic records an event for a policy whose evaluation panicked.
func (r *RuntimeReporter) ReportPanic(found policy.PanicReport) {
	r.record(found.Policy, report{found.UID, found.Generation, ReasonPanicked}, "Evaluate", fmt.Sprintf(
		"an evaluation panicked on replica %s, and failurePolicy decided the request; other requests are evaluated: report the stack in the log of that replica", r.Replica))
}

func (r *RuntimeReporter) record(policy string, key report, action, message string) {
	if r.shouldRecord(key) {
		p := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: policy, UID: key.uid}}
		r.Events.Eventf(p, nil, corev1.EventTypeWarning, key.reason, action, "%s", eventMessage(message))
	}
}

// shouldRecord returns true at most once per reportInterval for each key.
func (r *RuntimeReporter) shouldRecord(key report) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	maps.DeleteFunc(r.reported, func(_ report, at time.Time) bool { return now.Sub(at) >= reportInterval })
	if _, ok := r.reported[key]; ok {
		return false
	}
	if r.reported == nil {
		r.reported = map[report]time.Time{}
	}
	r.reported[key] = now
	return true
}

// notIdempotentMessage names the mutations that are not idempotent, and a fix.
func notIdempotentMessage(mutations []int) string {
	fields := make([]string, len(mutations))
	for i, index := range mutations {
		fields[i] = fmt.Sprintf("spec.mutations[%d]", index)
	}
	return strings.Join(fields, ", ") + " changed the object again when applied to its own result, and may change it on every update: " +
		"change the expression, or add a match condition, so that it changes nothing the second time"
}
