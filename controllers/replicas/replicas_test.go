package replicas

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/versionskew"
)

func loaded(version string) Report {
	return Report{Report: versionskew.Report{Loaded: versionskew.Vector{versionskew.Policies: version}}}
}

func TestReportRoundTrip(t *testing.T) {
	tests := map[string]Report{
		"nothing":  {},
		"policies": loaded("18446744073709551616"),
		"everything": {
			Report: versionskew.Report{
				Loaded: versionskew.Vector{versionskew.Policies: "42"}, Known: "a,b(c)", Withheld: "spec.b.c", Unloaded: "n/e", Unready: "1a",
			},
			Epoch: 7, Fingerprint: "ab12", BadCertificates: 3,
		},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := reportOf(want.annotations())
			if err != nil || got != want {
				t.Errorf("read back %+v, %v, want %+v", got, err, want)
			}
		})
	}
}

func TestInvalidReports(t *testing.T) {
	tests := map[string]struct{ annotation, want string }{
		"epoch": {annotationEpoch, "reading annotation admission.ostiary.dev/serving-epoch: "},
		"count": {annotationBadCertificates, "reading annotation admission.ostiary.dev/bad-certificate-alerts: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := reportOf(map[string]string{annotationLoaded + "policies": "42", tt.annotation: "many"})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || got != (Report{}) {
				t.Errorf("got %+v, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestLeaseNames(t *testing.T) {
	tests := map[string]struct{ identity, want string }{
		"a Pod's":        {"ostiary-7d9-x", "ostiary-replica-ostiary-7d9-x"},
		"a host's":       {"My_Host.example-1a2b", "ostiary-replica-my-host-example-1a2b"},
		"ends in a dash": {"host-", "ostiary-replica-host"},
		"too long":       {strings.Repeat("x", 300), "ostiary-replica-" + strings.Repeat("x", 237)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := LeaseName(tt.identity)
			if got != tt.want || len(validation.IsDNS1123Subdomain(got)) > 0 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// watched is a Registry with a fake clock.
type watched struct {
	*Registry
	clock   time.Time
	version int
}

func newWatched() *watched {
	w := &watched{Registry: NewRegistry(nil, "ns", logr.Discard()), clock: time.Now()}
	w.now = func() time.Time { return w.clock }
	w.synced = func() bool { return true }
	return w
}

// lease returns a Lease of a replica whose clock is wrong by years.
func (w *watched) lease(name string, report Report) *coordinationv1.Lease {
	w.version++
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: LeaseName(name), ResourceVersion: string(rune('0' + w.version)), Annotations: report.annotations()},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0)},
		},
	}
}

func (w *watched) wantLive(t *testing.T, want ...Replica) {
	t.Helper()
	got, err := w.Live(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alive (-want +got):\n%s", diff)
	}
}

func TestLive(t *testing.T) {
	w := newWatched()
	a, b := w.lease("a", loaded("5")), w.lease("b", Report{})
	w.observe(a)
	w.observe(b)
	replicaA, replicaB := Replica{Name: "a", Report: loaded("5")}, Replica{Name: "b"}
	w.wantLive(t, replicaA, replicaB)

	w.clock = w.clock.Add(30 * time.Second)
	w.observe(w.lease("a", loaded("6")))
	w.observe(b) // a second list
	w.clock = w.clock.Add(11 * time.Second)
	w.wantLive(t, Replica{Name: "a", Report: loaded("6")})
	if left := w.abandoned(); len(left) > 0 {
		t.Errorf("%v would be deleted one second after expiry", left)
	}

	w.observe(w.lease("b", Report{})) // it was only late
	w.wantLive(t, Replica{Name: "a", Report: loaded("6")}, replicaB)
	w.forget(cache.DeletedFinalStateUnknown{Obj: w.lease("a", Report{})})
	w.wantLive(t, replicaB)

	w.clock = w.clock.Add(time.Hour)
	if left := w.abandoned(); len(left) != 1 {
		t.Errorf("%v would be deleted, want the Lease that expired an hour ago", left)
	}
}

func TestLiveBeforeSync(t *testing.T) {
	r := NewRegistry(nil, "ns", logr.Discard())
	if _, err := r.Live(t.Context()); err == nil {
		t.Error("got replicas before any Lease was read")
	}
}

// TestSubscribe checks that an unchanged renewal does not notify subscribers.
func TestSubscribe(t *testing.T) {
	w := newWatched()
	changes := w.Subscribe(t.Context())
	notified := func() bool {
		select {
		case <-changes:
			return true
		default:
			return false
		}
	}
	steps := []struct {
		name string
		do   func()
		want bool
	}{
		{"a replica starts", func() { w.observe(w.lease("a", Report{})) }, true},
		{"it renews", func() { w.observe(w.lease("a", Report{})) }, false},
		{"it counts violations", func() { w.observe(counted(w.lease("a", Report{}))) }, false},
		{"it reports", func() { w.observe(w.lease("a", loaded("7"))) }, true},
		{"it had expired", func() { w.clock = w.clock.Add(time.Hour); w.observe(w.lease("a", loaded("7"))) }, true},
		{"its Lease is deleted", func() { w.forget(w.lease("a", Report{})) }, true},
	}
	for _, step := range steps {
		if step.do(); notified() != step.want {
			t.Errorf("%s: notified %t, want %t", step.name, !step.want, step.want)
		}
	}
}

// counted adds counts of violations to a Lease.
func counted(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease.Annotations = map[string]string{annotationViolations: "{}"}
	return lease
}

func TestLeaseCarriesCounts(t *testing.T) {
	counts := ""
	r := NewReporter(Options{Lease: NewLease(), Identity: "a", Violations: func() string { return counts }})
	if lease := r.lease(Report{}, time.Now()); len(lease.Annotations) > 0 {
		t.Errorf("annotations %v, want none without violations", lease.Annotations)
	}
	counts = "{}"
	if got := r.lease(loaded("7"), time.Now()).Annotations; got[annotationViolations] != "{}" || got[annotationLoaded+"policies"] != "7" {
		t.Errorf("annotations %v, want the counts and the report", got)
	}
	w := newWatched()
	w.observe(counted(w.lease("a", Report{})))
	w.wantLive(t, Replica{Name: "a", Violations: "{}"})
}

func TestReady(t *testing.T) {
	r := NewReporter(Options{Lease: NewLease(), Report: func(context.Context) Report { return Report{} }})
	if r.Ready() == nil {
		t.Error("ready without a Lease")
	}
	now := r.now()
	r.renewed.Store(&now)
	if err := r.Ready(); err != nil {
		t.Error(err)
	}
	past := now - r.timing.unready - time.Second
	r.renewed.Store(&past)
	if r.Ready() == nil {
		t.Error("ready with an old Lease")
	}
	if r.timing.unready+r.timing.attempt >= r.timing.duration || 2*r.timing.renew > r.timing.unready {
		t.Errorf("timing %+v: one missed renewal makes the replica unready, or the Lease expires too early after that", r.timing)
	}
}
