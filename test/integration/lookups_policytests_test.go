package integration

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/cli/policytest"
)

// setupUser creates the objects of cases. No policy applies to it.
const setupUser = "lookups-setup"

// TestPolicyTestsOfReferences sends the requests of the PolicyTests of library/references to an API server, with the
// stored objects of each case, and expects the messages that kubectl-ostiary expects. The short form has every third
// case.
func TestPolicyTestsOfReferences(t *testing.T) {
	c := install(t)
	c.manager(t)
	sent, step := 0, 1
	if testing.Short() {
		step = 3
	}
	suites := librarySuites(t)["references"]
	for _, s := range suites {
		t.Run(s.Name, func(t *testing.T) {
			c.applyLookups(t, s.Name, func(policy string) string {
				const conditions = "  matchConditions:\n"
				const not = `  - {name: not-setup, expression: 'request.userInfo.username != "` + setupUser + `"'}` + "\n"
				if strings.Contains(policy, conditions) {
					return strings.Replace(policy, conditions, conditions+not, 1)
				}
				return strings.Replace(policy, "  lookups:\n", conditions+not+"  lookups:\n", 1)
			})
			for i := 0; i < len(s.Cases); i += step {
				sent++
				t.Run(s.Cases[i].Name, func(t *testing.T) { c.testReference(t, s.Cases[i]) })
			}
		})
	}
	if want := 100 / step; len(suites) < 14 || sent < want {
		t.Errorf("sent %d requests to %d policies, want at least %d to 14", sent, len(suites), want)
	}
}

// reference is a case with the names of the namespaces of this test.
type reference struct {
	*cluster
	names replacements
	own   string // instead of the namespace default
}

func (c *cluster) testReference(t *testing.T, k *policytest.Case) {
	r := &reference{cluster: c, own: c.namespace(t, nil)}
	text := string(k.Request.Object.Raw) + string(k.Request.OldObject.Raw) + k.Expect.Message
	for _, o := range k.Objects {
		text += string(o.Raw)
	}
	for _, name := range []string{"team-a", "team-b", "shop", "edge"} {
		if strings.Contains(text, name) {
			r.names = append(r.names, name, c.namespace(t, nil))
		}
	}
	setup := c.impersonating(t, "", setupUser, "system:masters")
	old, object := r.object(t, k.OldObject), r.object(t, k.Object)
	for i := range k.Objects {
		r.store(t, setup, r.object(t, &k.Objects[i]))
	}
	if old != nil {
		r.store(t, setup, old)
	}
	user := c.impersonating(t, "", k.User, append(slices.Clone(k.Groups), "system:masters")...)
	if k.User == "" {
		user = c.impersonating(t, "", developer, "system:masters")
	}
	want := strings.NewReplacer("namespace default ", "namespace "+r.own+" ", "default/", r.own+"/").Replace(r.names.in(k.Expect.Message))
	await(t).Eventually(func() string {
		_, err := user.send(t.Context(), exampleEffect{Before: old, Object: object, Subresource: k.Subresource}, nil)
		got := ""
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), " with binding 'library' denied request: ")
			got = cmp.Or(got, err.Error())
		}
		return gocmp.Diff(want, got)
	}).Should(BeEmpty(), "the answer (-want +got)")
}

// object returns an object of the case with the names of this test; nil without one.
func (r *reference) object(t *testing.T, raw *runtime.RawExtension) *unstructured.Unstructured {
	t.Helper()
	if raw == nil {
		return nil
	}
	u := &unstructured.Unstructured{}
	must(t, u.UnmarshalJSON([]byte(r.names.in(string(raw.Raw)))))
	namespaced, err := r.IsObjectNamespaced(u)
	must(t, err)
	if namespaced && (u.GetNamespace() == "" || u.GetNamespace() == metav1.NamespaceDefault) {
		u.SetNamespace(r.own)
	}
	return u
}

// store creates an object, with its status, until the end of the case.
func (r *reference) store(t *testing.T, setup *asker, u *unstructured.Unstructured) {
	t.Helper()
	created := u.DeepCopy()
	// The ServiceAccount of a new namespace may not exist yet.
	await(t).Eventually(func() error {
		created = u.DeepCopy()
		if err := setup.Create(t.Context(), created); !apierrors.IsAlreadyExists(err) {
			return err
		}
		created = nil
		return nil
	}).Should(Succeed())
	if created == nil {
		return
	}
	t.Cleanup(func() {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)) // no controller removes them
		_ = setup.Patch(context.Background(), created.DeepCopy(), patch)
		_ = setup.Delete(context.Background(), created, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
	if status, ok := u.Object["status"]; ok {
		created.Object["status"] = status
		must(t, setup.Status().Update(t.Context(), created))
	}
}
