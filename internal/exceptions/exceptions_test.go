package exceptions_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
	"github.com/ostiary/ostiary/internal/exceptions"
)

var noon = time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)

// exception returns an exception from one validation of a policy for Deployments.
func exception(namespace, name string, change ...func(*v1alpha1.WebhookPolicyExceptionSpec)) *v1alpha1.WebhookPolicyException {
	x := &v1alpha1.WebhookPolicyException{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)), Generation: 2,
	}}
	x.Spec = v1alpha1.WebhookPolicyExceptionSpec{
		PolicyName:  "require-team",
		Validations: []string{"has-team"},
		Match:       []v1alpha1.ExceptionMatch{{Group: "apps", Resources: []string{"deployments"}}},
		Reason:      "BILL-1234",
	}
	for _, c := range change {
		c(&x.Spec)
	}
	return x
}

func TestCovers(t *testing.T) {
	selector := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	match := func(all ...v1alpha1.ExceptionMatch) func(*v1alpha1.WebhookPolicyExceptionSpec) {
		return func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Match = all }
	}
	names := func(all ...string) func(*v1alpha1.WebhookPolicyExceptionSpec) {
		return match(v1alpha1.ExceptionMatch{Group: "apps", Resources: []string{"deployments"}, Names: all})
	}
	condition := func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Condition = "object.spec.replicas < 3" }
	web := exceptions.Object{Group: "apps", Resource: "deployments", Name: "web"}
	for _, tt := range []struct {
		name   string
		change func(*v1alpha1.WebhookPolicyExceptionSpec)
		object exceptions.Object
		holds  bool
		err    error
		want   exceptions.Mismatch
	}{
		{name: "resource", object: web},
		{name: "other group", object: exceptions.Object{Resource: "deployments", Name: "web"}, want: exceptions.OtherResource},
		{name: "subresource", object: exceptions.Object{Group: "apps", Resource: "deployments/scale"}, want: exceptions.OtherResource},
		{name: "exact name", change: names("api", "web"), object: web},
		{name: "other name", change: names("we", "webs"), object: web, want: exceptions.OtherName},
		{name: "wildcard at the end", change: names("we*"), object: web},
		{name: "wildcard for nothing", change: names("web*"), object: web},
		{name: "wildcard in the middle", change: names("w*b"), object: web},
		{name: "wildcard does not overlap", change: names("web*eb"), object: web, want: exceptions.OtherName},
		{name: "two wildcards", change: names("*e*"), object: web, want: exceptions.OtherName},
		{name: "no name yet", change: names("*"), object: exceptions.Object{Group: "apps", Resource: "deployments"}, want: exceptions.OtherName},
		{name: "no name yet and none wanted", object: exceptions.Object{Group: "apps", Resource: "deployments"}},
		{
			name:   "labels",
			change: match(v1alpha1.ExceptionMatch{Group: "apps", Resources: []string{"deployments"}, ObjectSelector: selector("app", "web")}),
			object: web,
		},
		{
			name:   "other labels",
			change: match(v1alpha1.ExceptionMatch{Group: "apps", Resources: []string{"deployments"}, ObjectSelector: selector("app", "api")}),
			object: web,
			want:   exceptions.OtherLabels,
		},
		{
			name: "second entry",
			change: match(
				v1alpha1.ExceptionMatch{Group: "apps", Resources: []string{"deployments"}, Names: []string{"api"}},
				v1alpha1.ExceptionMatch{Group: "apps", Resources: []string{"daemonsets", "deployments"}, Names: []string{"web"}},
			),
			object: web,
		},
		{name: "true condition", change: condition, object: web, holds: true},
		{name: "false condition", change: condition, object: web, want: exceptions.ConditionFalse},
		{name: "failed condition", change: condition, object: web, holds: true, err: errors.New("no such key"), want: exceptions.ConditionError},
		{name: "no match", change: match(), object: web, want: exceptions.OtherResource},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change == nil {
				tt.change = func(*v1alpha1.WebhookPolicyExceptionSpec) {}
			}
			tt.object.Labels = func() (labels.Set, bool) { return labels.Set{"app": "web"}, true }
			tt.object.Holds = func(*exceptions.Entry) (bool, error) { return tt.holds, tt.err }
			got, err := exceptions.NewEntry(exception("shop", "x", tt.change)).Covers(&tt.object)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestIncludes(t *testing.T) {
	named := exceptions.NewEntry(exception("shop", "named"))
	all := exceptions.NewEntry(exception("shop", "all", func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Validations = []string{"*"} }))
	for _, tt := range []struct {
		name, validation   string
		wantNamed, wantAll bool
	}{
		{"same", "has-team", true, true},
		{"other", "has-owner", false, true},
		{"unnamed", "", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := []bool{named.Includes(tt.validation), all.Includes(tt.validation)}
			if diff := cmp.Diff([]bool{tt.wantNamed, tt.wantAll}, got); diff != "" {
				t.Errorf("named and all, -want +got:\n%s", diff)
			}
		})
	}
}

func TestState(t *testing.T) {
	policy := func(longest int64) *v1alpha1.WebhookPolicySpec {
		s := &v1alpha1.WebhookPolicySpec{Exceptions: &v1alpha1.Exceptions{}, Validations: []v1alpha1.Validation{{Name: "has-team"}}}
		if longest > 0 {
			s.Exceptions.MaxDurationSeconds = &longest
		}
		return s
	}
	backend := policy(0)
	backend.Backend = &v1alpha1.Backend{}
	end := func(after time.Duration) func(*v1alpha1.WebhookPolicyExceptionSpec) {
		return func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.ExpirationTime = new(metav1.NewTime(noon.Add(after))) }
	}
	set := func(change func(*v1alpha1.WebhookPolicyExceptionSpec)) func(*v1alpha1.WebhookPolicyExceptionSpec) {
		return change
	}
	for _, tt := range []struct {
		name   string
		policy *v1alpha1.WebhookPolicySpec
		change func(*v1alpha1.WebhookPolicyExceptionSpec)
		want   string
	}{
		{"no policy", nil, end(time.Hour), exceptions.ReasonPolicyNotFound},
		{"not allowed", &v1alpha1.WebhookPolicySpec{}, end(time.Hour), exceptions.ReasonNotAllowed},
		{"backend", backend, end(time.Hour), exceptions.ReasonPolicyHasBackend},
		{"no end", policy(0), end(time.Hour), ""},
		{"end missing", policy(7200), set(func(*v1alpha1.WebhookPolicyExceptionSpec) {}), exceptions.ReasonNoExpirationTime},
		{"longest", policy(7200), end(time.Hour), ""},
		{"a second too long", policy(7200), end(time.Hour + time.Second), exceptions.ReasonExceedsMaxDuration},
		{"a second left", policy(0), end(time.Second), ""},
		{"ended now", policy(0), end(0), exceptions.ReasonExpired},
		{"end in year 1", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.ExpirationTime = &metav1.Time{}
		}), exceptions.ReasonExpired},
		{"unknown validation", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Validations = []string{"team"}
		}), exceptions.ReasonUnknownValidation},
		{"one is known", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Validations = append(s.Validations, "team") }), ""},
		{"all validations", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Validations = []string{"*"} }), ""},
		{"selector", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Match[0].ObjectSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}
		}), exceptions.ReasonInvalidSelector},
		{"valid condition", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Condition = "oldObject == null" }), ""},
		{"condition with request", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Condition = "request.userInfo.username == 'a'"
		}), exceptions.ReasonInvalidCondition},
		{"condition with namespaceObject", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Condition = "namespaceObject == null"
		}), exceptions.ReasonInvalidCondition},
		{"condition with authorizer", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Condition = "authorizer.group('').resource('pods').check('get').allowed()"
		}), exceptions.ReasonInvalidCondition},
		{"condition is a string", policy(0), set(func(s *v1alpha1.WebhookPolicyExceptionSpec) {
			s.Condition = "'true'"
		}), exceptions.ReasonInvalidCondition},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := exceptions.NewEntry(exception("shop", "x", tt.change))
			got, message := e.State(tt.policy, noon, celengine.NewCompiler(celengine.LatestEngine))
			if got != tt.want || (message == "") != (got == "") {
				t.Errorf("got %q, %q, want %q", got, message, tt.want)
			}
		})
	}
}

// A finalizer keeps an exception that is deleted, but not its effect.
func TestDeleting(t *testing.T) {
	x := exception("shop", "x")
	x.DeletionTimestamp, x.Finalizers = new(metav1.NewTime(noon)), []string{"example.com/keep"}
	spec := &v1alpha1.WebhookPolicySpec{Exceptions: &v1alpha1.Exceptions{}, Validations: []v1alpha1.Validation{{Name: "has-team"}}}
	reason, message := exceptions.NewEntry(x).State(spec, noon, nil)
	const want = "the exception is being deleted: its finalizers at metadata.finalizers keep the object, without an effect"
	if reason != exceptions.ReasonDeleting || message != want || exceptions.Field(reason) != "metadata.finalizers" {
		t.Errorf("got %q, %q", reason, message)
	}
}

// An exception of a file has no creationTimestamp.
func TestCreatedNow(t *testing.T) {
	x := exception("shop", "x", func(s *v1alpha1.WebhookPolicyExceptionSpec) {
		s.ExpirationTime = new(metav1.NewTime(noon.Add(time.Hour)))
	})
	x.CreationTimestamp = metav1.Time{}
	permitted := &v1alpha1.Exceptions{MaxDurationSeconds: new(int64(3600))}
	e := exceptions.NewEntry(x)
	got := []string{e.Inactive(permitted, noon.Add(-time.Second)), e.Inactive(permitted, noon), e.Inactive(permitted, noon.Add(time.Hour))}
	want := []string{exceptions.ReasonExceedsMaxDuration, "", exceptions.ReasonExpired}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestIndex(t *testing.T) {
	keys := func(all []*exceptions.Entry) (out []string) {
		for _, e := range all {
			out = append(out, fmt.Sprintf("%s %d", e.Key, e.Generation))
		}
		return out
	}
	entry := func(namespace, name string, age time.Duration, generation int64) *exceptions.Entry {
		x := exception(namespace, name)
		x.CreationTimestamp, x.Generation = metav1.NewTime(noon.Add(-age)), generation
		return exceptions.NewEntry(x)
	}
	young, old, other := entry("shop", "young", 1, 1), entry("shop", "old", time.Hour, 1), entry("bank", "other", 1, 1)
	var empty *exceptions.Index
	first := empty.With(young)
	second := first.With(other).With(old).With(entry("shop", "young", 1, 2))
	third := second.Without(old).Without(old)
	for _, tt := range []struct {
		name      string
		index     *exceptions.Index
		namespace string
		want      []string
		wantLen   int
	}{
		{"nil", empty, "shop", nil, 0},
		{"one", first, "shop", []string{"shop/young 1"}, 1},
		{"other namespace", first, "bank", nil, 1},
		{"cluster", first, "", nil, 1},
		{"oldest first and replaced", second, "shop", []string{"shop/old 1", "shop/young 2"}, 3},
		{"removed", third, "shop", []string{"shop/young 2"}, 2},
		{"made at once", exceptions.NewIndex([]*exceptions.Entry{young, other, old}), "shop", []string{"shop/old 1", "shop/young 1"}, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, keys(tt.index.For("require-team", tt.namespace))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := tt.index.Len(); got != tt.wantLen {
				t.Errorf("Len is %d, want %d", got, tt.wantLen)
			}
			if got := tt.index.For("require-owner", tt.namespace); len(got) > 0 {
				t.Errorf("another policy has %v", keys(got))
			}
		})
	}
}

func TestIndexBound(t *testing.T) {
	var x *exceptions.Index
	var last *exceptions.Entry
	for i := range exceptions.MaxPerPolicyAndNamespace + 1 {
		last = exceptions.NewEntry(exception("shop", fmt.Sprintf("x-%03d", i)))
		x = x.With(last)
	}
	if got := len(x.For("require-team", "shop")); got != exceptions.MaxPerPolicyAndNamespace {
		t.Errorf("%d have an effect, want %d", got, exceptions.MaxPerPolicyAndNamespace)
	}
	if !x.TooMany(last) {
		t.Error("the last one has an effect")
	}
	if x = x.Without(x.For("require-team", "shop")[0]); x.TooMany(last) {
		t.Error("the last one has no effect after another one has gone")
	}
}

// TestConditionIsShared shows that a condition is compiled once, also in two exceptions.
func TestConditionIsShared(t *testing.T) {
	set := func(s *v1alpha1.WebhookPolicyExceptionSpec) { s.Condition = "object.spec.replicas < 3" }
	a, b := exceptions.NewEntry(exception("shop", "a", set)), exceptions.NewEntry(exception("shop", "b", set))
	c := celengine.NewCompiler(celengine.LatestEngine)
	first := a.Program(c)
	if a.Program(c) != first || b.Program(c) != first {
		t.Error("the condition was compiled again")
	}
	if other := celengine.NewCompiler(celengine.OldestEngine); a.Program(other) == b.Program(c) {
		t.Error("another engine has the same program")
	}
}

// TestMemory bounds what an exception without a condition keeps, in an index.
func TestMemory(t *testing.T) {
	const n, most = 10_000, 1536
	before := heap()
	all := make([]*exceptions.Entry, n)
	for i := range all {
		name := func(of string) string { return strings.Clone(fmt.Sprintf("%s-%05d", of, i)) }
		x := exception(name("namespace"), name("exception"))
		x.Spec.PolicyName, x.Spec.Reason = name("policy"), name("BILL-1234: the vendor chart cannot set labels")
		x.Spec.Match[0].Names = []string{name("web")}
		x.Spec.Match = append(x.Spec.Match, v1alpha1.ExceptionMatch{
			Resources: []string{"pods"}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name("web")}},
		})
		all[i] = exceptions.NewEntry(x)
	}
	x := exceptions.NewIndex(all)
	got := (heap() - before) / n
	t.Logf("%d bytes for an exception", got)
	if x.Len() != n || got > most {
		t.Errorf("%d exceptions keep %d bytes each, want at most %d", x.Len(), got, most)
	}
	runtime.KeepAlive(all)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestVersions shows that the version of a policy changes with the exceptions that have an effect.
func TestVersions(t *testing.T) {
	ending := exceptions.NewEntry(exception("shop", "ending", func(s *v1alpha1.WebhookPolicyExceptionSpec) {
		s.ExpirationTime = new(metav1.NewTime(noon.Add(time.Second)))
	}))
	changed := exception("shop", "ending", func(s *v1alpha1.WebhookPolicyExceptionSpec) {
		s.ExpirationTime = new(metav1.NewTime(noon.Add(time.Second)))
	})
	changed.Generation++
	lasting := exceptions.NewEntry(exception("bank", "lasting"))
	var none *exceptions.Index
	both := none.With(ending).With(lasting)
	got := []map[string]uint64{
		none.Versions(noon), both.Versions(noon), none.With(lasting).With(ending).Versions(noon), both.Versions(noon.Add(time.Second)),
		none.With(lasting).Versions(noon), both.With(exceptions.NewEntry(changed)).Versions(noon),
	}
	if len(got[0]) > 0 {
		t.Errorf("without exceptions: %v", got[0])
	}
	for _, tt := range []struct {
		name     string
		a, b     int
		wantSame bool
	}{
		{"in another order", 1, 2, true},
		{"after the end", 1, 3, false},
		{"after the end and a deletion", 3, 4, true},
		{"changed", 1, 5, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if same := got[tt.a]["require-team"] == got[tt.b]["require-team"]; same != tt.wantSame {
				t.Errorf("same is %t, want %t", same, tt.wantSame)
			}
		})
	}
}
