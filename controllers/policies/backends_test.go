package policies

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/backends"
	"github.com/ostiary/ostiary/internal/egress"
	"github.com/ostiary/ostiary/internal/registration"
)

// hosting is a loader of a replica that does not lead: it reads no bundles.
func hosting(t *testing.T) *Loader {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	l := newLoader(t)
	l.Backends = backends.New(backends.Options{Client: client, Namespace: "ostiary-system", Registerer: prometheus.NewRegistry()})
	return l
}

// hosted is a policy with a backend whose CA bundle is in a Secret.
func hosted(name string, generation int64) v1alpha1.WebhookPolicy {
	p := newPolicy(name, generation, "true")
	p.Spec.Validations = nil
	p.Spec.Backend = &v1alpha1.Backend{
		Type: v1alpha1.BackendValidating, URL: "https://checks.example.com", SideEffects: admissionregistrationv1.SideEffectClassNone,
		AdmissionReviewVersions: []string{"v1"},
		CAFrom:                  &v1alpha1.CASource{Secret: &v1alpha1.ObjectKey{Namespace: "shop", Name: "ca", Key: "ca.crt"}},
	}
	return p
}

func podCreation() *admissionv1.AdmissionRequest {
	return &admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "default", Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default"}}`)},
	}
}

// A registered policy whose author moves it to a backend stays registered until the
// backend can be, whatever becomes of the replicas meanwhile.
func TestPolicyMovesToABackendThatIsNotTrustedYet(t *testing.T) {
	tests := map[string]struct {
		failurePolicy  admissionregistrationv1.FailurePolicyType
		restarted      bool
		generations    int64 // with a backend
		wantGeneration int64
		wantDenied     string // part of the denial; "" is that the request passes
	}{
		"a replica that knows what was before": {"Fail", false, 1, 1, "failed expression: false"},
		"it knows it two changes later":        {"Fail", false, 2, 1, "failed expression: false"},
		"a replica that has started since":     {"Fail", true, 1, 1, "the CA bundle of the backend is not known yet"},
		"it has seen two changes":              {"Fail", true, 2, 1, "the CA bundle of the backend is not known yet"},
		"one that fails open":                  {"Ignore", true, 1, 1, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := hosting(t)
			first := newPolicy("moves", 1, "false")
			first.Spec.FailurePolicy = &tc.failurePolicy
			state := load(l, load(l, nil, first), first)
			if tc.restarted {
				l = hosting(t)
			}
			for i := range tc.generations {
				next := hosted("moves", 2+i)
				next.Spec.FailurePolicy = &tc.failurePolicy
				state = load(l, state, next)
				state = load(l, state, next) // beside what that was registered as
			}
			e := state.Entries["uid-moves"]
			if !e.Planned() || e.EffectiveGeneration() != tc.wantGeneration || e.IsPlaceholder() != tc.restarted {
				t.Fatalf("planned %t, generation %d registered, placeholder %t; want generation %d, placeholder %t", e.Planned(),
					e.EffectiveGeneration(), e.IsPlaceholder(), tc.wantGeneration, tc.restarted)
			}
			if _, ok, why := state.Registered(e); !ok {
				t.Errorf("it is not registered: %s", why)
			}
			got, err := l.Store.Evaluate(t.Context(), groupOf(state, registration.PhaseValidate, "moves"), podCreation())
			if err != nil || got.Allowed != (tc.wantDenied == "") || !got.Allowed && !strings.Contains(got.Result.Message, tc.wantDenied) {
				t.Errorf("answer %+v, %v; want a denial with %q", got, err, tc.wantDenied)
			}
		})
	}
}

// A backend that is refused is neither registered nor looked at, although the
// review of policies was not there to reject it.
func TestRefusedBackend(t *testing.T) {
	for name, tt := range map[string]struct {
		rule      egress.Rule
		url       string
		wantError string // "" is that it is registered
	}{
		"a name": {url: "https://checks.example.com"},
		"backends disabled": {
			rule:      egress.Rule{DisableBackends: true},
			url:       "https://checks.example.com",
			wantError: "spec.backend: Forbidden: remove backend: Ostiary runs with --disable-backends",
		},
		"metadata of a cloud": {
			url:       "https://169.254.169.254/latest",
			wantError: "spec.backend.url: Forbidden: 169.254.169.254 is a cloud metadata address",
		},
		"loopback in disguise": {
			url:       "https://[::ffff:7f00:1]/",
			wantError: "spec.backend.url: Forbidden: ::ffff:127.0.0.1 is a loopback address",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := hosting(t)
			l.BackendRule = tt.rule
			p := hosted("p", 1)
			p.Spec.Backend.URL, p.Spec.Backend.CAFrom = tt.url, nil
			state := load(l, nil, p)
			e := state.Entries["uid-p"]
			if registered := e.Planned() && len(state.Plan.Groups) == 1; registered != (tt.wantError == "") {
				t.Errorf("planned %t, in %d groups", e.Planned(), len(state.Plan.Groups))
			}
			if tt.wantError != "" && (len(e.Errors) != 1 || !strings.HasPrefix(e.Errors[0].Error(), tt.wantError)) {
				t.Errorf("errors %v, want %q", e.Errors, tt.wantError)
			}
			if _, known := l.Backends.Bundle(&p); known != (tt.wantError == "") {
				t.Errorf("the backend is looked at: %t", known)
			}
		})
	}
}

// What was never registered is not registered for a backend without a bundle.
func TestNewBackendWaitsForItsBundle(t *testing.T) {
	state := load(hosting(t), nil, hosted("waits", 1))
	if e := state.Entries["uid-waits"]; e.Planned() || len(state.Plan.Groups) > 0 {
		t.Errorf("planned %t, in %d groups", e.Planned(), len(state.Plan.Groups))
	}
}
