package chaos

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// lookedUp is the resource of the lookup.
	lookedUp = "limitranges"
	// lookupLag is how long after its acknowledged deletion a stored object may be found: --lookup-max-age, and the
	// time of a request.
	lookupLag = 62 * time.Second
)

// lookupsChanged creates and deletes objects that lookups find, while the leader and a replica are killed, another
// replica does not hear of changes, and Ostiary may not read the objects.
func lookupsChanged(r *run) {
	e := &changedExceptions{run: r, took: map[string][]time.Duration{}, objectOf: limitsOf, lag: lookupLag, decision: "allowed"}
	e.breakAll = func(every bool) {
		e.stallAndKill(every)
		e.mayLookUp(false)
		pause(e.T, stallTime)
		e.mayLookUp(true)
	}
	defer e.judge()
	e.mayLookUp(true)
	validations := policy(exceptionPlace).Spec.Validations
	e.patchPolicy(map[string]any{
		"lookups": []v1alpha1.Lookup{{
			Name: "permits", Resource: v1alpha1.LookupResource{Version: "v1", Resource: lookedUp},
			StoredKeys: `[string(stored.metadata.labels["permits"])]`, RequestKeys: "[request.name]",
		}},
		"validations": []v1alpha1.Validation{{
			Expression: `[object].size() == 1 && (!request.name.startsWith("bad") || lookups.permits.size() > 0)`, Message: validations[0].Message,
		}},
	})
	e.awaitReady()
	defer func() {
		must(e.T, e.admin().DeleteAllOf(e.Context(), &corev1.LimitRange{}, client.InNamespace(place(exceptionPlace))))
		e.patchPolicy(map[string]any{"lookups": nil, "validations": validations})
		e.awaitReady()
	}()
	e.change()
}

// limitsOf returns the object that lets another one pass.
func limitsOf(o *excepted) client.Object {
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{
		Namespace: place(exceptionPlace), Name: o.exception, Labels: map[string]string{"permits": o.name},
	}}
}

// mayLookUp sets the role that a controller manager aggregates elsewhere.
func (e *changedExceptions) mayLookUp(allowed bool) {
	e.logf("Ostiary may read the objects of lookups: %t", allowed)
	role := &rbacv1.ClusterRole{}
	must(e.T, e.admin().Get(e.Context(), client.ObjectKey{Name: "ostiary-lookups"}, role))
	role.Rules = nil
	if allowed {
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{lookedUp}, Verbs: []string{"list", "watch"}}}
	}
	must(e.T, e.admin().Update(e.Context(), role))
}
