package authorization

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/test/controlplane"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const eventually = time.Minute

var cluster *controlplane.ControlPlane

func TestMain(m *testing.M) {
	// Unlike RBAC, the node authorizer evaluates field selectors.
	o := controlplane.Options{NoControllerManager: true, APIServerArgs: []string{"--authorization-mode=Node"}}
	os.Exit(cptest.Main(m, o, func(cp *controlplane.ControlPlane) { cluster = cp }))
}

var _ authorizer.UnconditionalAuthorizer = (*Authorizer)(nil)

func newAuthorizer(config *rest.Config) *Authorizer {
	return New(kubernetes.NewForConfigOrDie(config).AuthorizationV1().SubjectAccessReviews(), prometheus.NewRegistry())
}

func selectors(field, label string) func(*authorizer.AttributesRecord) {
	return func(a *authorizer.AttributesRecord) {
		if field != "" {
			selector, err := fields.ParseSelector(field)
			if a.FieldSelectorParsingErr = err; err == nil {
				a.FieldSelectorRequirements = selector.Requirements()
			}
		}
		if label != "" {
			a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labels.ParseToRequirements(label)
		}
	}
}

func attributes(u user.Info, verb, resource string, mods ...func(*authorizer.AttributesRecord)) authorizer.Attributes {
	a := &authorizer.AttributesRecord{User: u, Verb: verb, APIVersion: "*", Resource: resource, Namespace: "default", ResourceRequest: true}
	for _, mod := range mods {
		mod(a)
	}
	return a
}

// bind binds a user to a role, which need not exist.
func bind(t *testing.T, name, role string, rules []rbacv1.PolicyRule) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cluster.Config()).RbacV1()
	if rules != nil {
		if _, err := client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAuthorize(t *testing.T) {
	bind(t, "reader", "reads-pods", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"mine"}, Verbs: []string{"get"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	})
	bind(t, "orphan", "missing-role", nil)
	reader := &user.DefaultInfo{Name: "reader", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"example.com/k": {"v"}}}
	node := &user.DefaultInfo{Name: "system:node:n1", Groups: []string{"system:nodes"}}
	type answer struct {
		Decision authorizer.Decision
		Reason   string // a part
	}
	allowed := answer{Decision: authorizer.DecisionAllow, Reason: `RBAC: allowed by ClusterRoleBinding "reads-pods" of ClusterRole "reads-pods" to User "reader"`}
	tests := map[string]struct {
		attributes authorizer.Attributes
		want       answer
	}{
		"allowed":                   {attributes(reader, "get", "pods"), allowed},
		"another verb":              {attributes(reader, "delete", "pods"), answer{Decision: authorizer.DecisionNoOpinion}},
		"subresource":               {attributes(reader, "get", "pods", func(a *authorizer.AttributesRecord) { a.Subresource = "log" }), allowed},
		"another subresource":       {attributes(reader, "get", "pods", func(a *authorizer.AttributesRecord) { a.Subresource = "exec" }), answer{Decision: authorizer.DecisionNoOpinion}},
		"name":                      {attributes(reader, "get", "secrets", func(a *authorizer.AttributesRecord) { a.Name = "mine" }), allowed},
		"another name":              {attributes(reader, "get", "secrets", func(a *authorizer.AttributesRecord) { a.Name = "yours" }), answer{Decision: authorizer.DecisionNoOpinion}},
		"another group":             {attributes(reader, "get", "pods", func(a *authorizer.AttributesRecord) { a.APIGroup = "apps" }), answer{Decision: authorizer.DecisionNoOpinion}},
		"path":                      {&authorizer.AttributesRecord{User: reader, Verb: "get", Path: "/metrics"}, allowed},
		"another path":              {&authorizer.AttributesRecord{User: reader, Verb: "get", Path: "/debug"}, answer{Decision: authorizer.DecisionNoOpinion}},
		"reason without a role":     {attributes(&user.DefaultInfo{Name: "orphan"}, "get", "pods"), answer{Decision: authorizer.DecisionNoOpinion, Reason: `"missing-role" not found`}},
		"node without its selector": {attributes(node, "list", "pods"), answer{Decision: authorizer.DecisionNoOpinion, Reason: "can only list/watch pods with spec.nodeName field selector"}},
		"node with its selector":    {attributes(node, "list", "pods", selectors("spec.nodeName=n1", "")), answer{Decision: authorizer.DecisionAllow}},
		"node with another's":       {attributes(node, "list", "pods", selectors("spec.nodeName=n2", "")), answer{Decision: authorizer.DecisionNoOpinion, Reason: "can only list/watch pods with spec.nodeName field selector"}},
		"invalid selector":          {attributes(node, "list", "pods", selectors("spec.nodeName", "")), answer{Decision: authorizer.DecisionNoOpinion, Reason: "can only list/watch pods with spec.nodeName field selector"}},
		"label selector":            {attributes(reader, "get", "pods", selectors("", "a=b,c!=d,e,!f,g in (h,i),j notin (k)")), allowed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAuthorizer(cluster.Config())
			// The RBAC authorizer caches roles.
			NewWithT(t).Eventually(func() string {
				decision, reason, err := a.Authorize(t.Context(), tc.attributes)
				if err != nil {
					return "error: " + err.Error()
				}
				got := answer{Decision: decision, Reason: tc.want.Reason}
				if !strings.Contains(reason, tc.want.Reason) {
					got.Reason = reason
				}
				return cmp.Diff(tc.want, got)
			}).WithTimeout(eventually).Should(BeEmpty())
		})
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReview(t *testing.T) {
	u := &user.DefaultInfo{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v", "w"}}}
	of := func(r *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: "u", UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}}, ResourceAttributes: r}
	}
	in, notIn := metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn
	tests := map[string]struct {
		attributes authorizer.Attributes
		want       authorizationv1.SubjectAccessReviewSpec
	}{
		"without selectors": {
			attributes(u, "get", "pods", func(a *authorizer.AttributesRecord) { a.APIGroup, a.Subresource, a.Name = "x", "log", "n" }),
			of(&authorizationv1.ResourceAttributes{Namespace: "default", Verb: "get", Group: "x", Version: "*", Resource: "pods", Subresource: "log", Name: "n"}),
		},
		"field selector": {
			attributes(u, "list", "pods", selectors("a=b,c!=d", "")),
			of(&authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Version: "*", Resource: "pods", FieldSelector: &authorizationv1.FieldSelectorAttributes{Requirements: []metav1.FieldSelectorRequirement{
				{Key: "a", Operator: metav1.FieldSelectorOpIn, Values: []string{"b"}}, {Key: "c", Operator: metav1.FieldSelectorOpNotIn, Values: []string{"d"}},
			}}}),
		},
		"label selector with inexpressible requirements": {
			attributes(u, "list", "pods", selectors("", "a=b,c!=d,e,!f,g in (h),i notin (j),k>1")),
			of(&authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Version: "*", Resource: "pods", LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: []metav1.LabelSelectorRequirement{
				{Key: "a", Operator: in, Values: []string{"b"}}, {Key: "c", Operator: notIn, Values: []string{"d"}},
				{Key: "e", Operator: metav1.LabelSelectorOpExists}, {Key: "f", Operator: metav1.LabelSelectorOpDoesNotExist},
				{Key: "g", Operator: in, Values: []string{"h"}}, {Key: "i", Operator: notIn, Values: []string{"j"}},
			}}}),
		},
		"invalid selectors": {
			attributes(u, "list", "pods", selectors("a", "a in")),
			of(&authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Version: "*", Resource: "pods"}),
		},
		"no user": {
			&authorizer.AttributesRecord{Verb: "get", Path: "/x"},
			authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/x", Verb: "get"}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := accessreview.SpecOf(tc.attributes)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("review (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnswers covers results that the API server does not return by default.
func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		status          authorizationv1.SubjectAccessReviewStatus
		wantDecision    authorizer.Decision
		wantErr         string
		wantUnavailable bool
	}{
		"denied":               {status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "r"}, wantDecision: authorizer.DecisionDeny},
		"denied with an error": {status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "r", EvaluationError: "e"}, wantDecision: authorizer.DecisionDeny, wantErr: "e"},
		"allowed with an error": {
			status:       authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "r", EvaluationError: "e"},
			wantDecision: authorizer.DecisionAllow, wantErr: "e",
		},
		"both": {
			status:       authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true, Reason: "r"},
			wantDecision: authorizer.DecisionNoOpinion, wantErr: "asking for authorization: the SubjectAccessReview is both allowed and denied", wantUnavailable: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				review := authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"}, Status: tc.status}
				if err := json.NewEncoder(w).Encode(review); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			decision, reason, err := newAuthorizer(&rest.Config{Host: server.URL}).Authorize(t.Context(), attributes(nil, "get", "pods"))
			var unanswered *accessreview.UnavailableError
			if decision != tc.wantDecision || textOf(err) != tc.wantErr || errors.As(err, &unanswered) != tc.wantUnavailable {
				t.Errorf("Authorize() = %v, %q, %v; want %v, %q", decision, reason, err, tc.wantDecision, tc.wantErr)
			}
			if !tc.wantUnavailable && reason != "r" {
				t.Errorf("reason = %q, want r", reason)
			}
		})
	}
}

func wantUnavailable(ctx context.Context, t *testing.T, a *Authorizer) {
	t.Helper()
	decision, _, err := a.Authorize(ctx, attributes(&user.DefaultInfo{Name: "u"}, "get", "pods"))
	var unanswered *accessreview.UnavailableError
	if decision != authorizer.DecisionNoOpinion || !errors.As(err, &unanswered) {
		t.Errorf("Authorize() = %v, %v; want an AuthorizerUnavailableError", decision, err)
	}
}

func TestUnresponsiveAPIServer(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a := newAuthorizer(&rest.Config{Host: "http://" + listener.Addr().String()})
	a.timeout = 50 * time.Millisecond
	wantUnavailable(t.Context(), t, a) // ends at its own timeout
	a.timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantUnavailable(ctx, t, a) // ends at the deadline of the request
}

func TestForbidden(t *testing.T) {
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "unprivileged"}
	registry := prometheus.NewRegistry()
	a := New(kubernetes.NewForConfigOrDie(config).AuthorizationV1().SubjectAccessReviews(), registry)
	wantUnavailable(t.Context(), t, a)
	if n := testutil.CollectAndCount(a.duration); n != 1 {
		t.Errorf("%d results in the metric, want 1", n)
	}
}

func TestConcurrencyIsLimited(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		now--
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true}}`))
	}))
	defer server.Close()
	a := newAuthorizer(&rest.Config{Host: server.URL, QPS: -1})
	a.slots, a.timeout = make(chan struct{}, 3), eventually
	var callers sync.WaitGroup
	for range 30 {
		callers.Go(func() {
			if decision, _, err := a.Authorize(t.Context(), attributes(nil, "get", "pods")); decision != authorizer.DecisionAllow || err != nil {
				t.Errorf("Authorize() = %v, %v", decision, err)
			}
		})
	}
	callers.Wait()
	if most > 3 {
		t.Errorf("%d concurrent reviews, want at most 3", most)
	}
	a.slots, a.timeout = make(chan struct{}), 10*time.Millisecond
	wantUnavailable(t.Context(), t, a) // all slots are taken
}

// TestAPIServerDown stops and restarts the API server of the other tests.
func TestAPIServerDown(t *testing.T) {
	config := cluster.Config()
	if err := cluster.StopAPIServer(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.StartAPIServer(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	wantUnavailable(t.Context(), t, newAuthorizer(config))
}
