package crd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/controlplane"
)

// Fields of the attacks: what an author without further permissions tries.
const (
	ownServer = "validations: null\nbackend: {type: Validating, url: 'https://author.example.com/collect', " +
		"admissionReviewVersions: [v1], sideEffects: None}"
	ownCommand = "validations: null\nmutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: " +
		"\"replace\", path: \"/spec/containers/0/command\", value: [\"sh\"]}]'}}]"
	secretRules = "\nmatchConstraints: {resourceRules: [{apiGroups: [\"\"], apiVersions: [v1], resources: [secrets], " +
		"operations: [CREATE, UPDATE]}]}"
	quotaPlugin = "validations: null\nmatchConstraints: null\nplugin: {name: ResourceQuota, config: {limitedResources: " +
		"[{resource: persistentvolumeclaims, matchContains: [gold]}]}}"
	denyPlugin   = "validations: null\nplugin: {name: AlwaysDeny}"
	quotaParams  = "paramKind: {apiVersion: v1, kind: ResourceQuota}\nbindings: "
	quotasOfTeam = quotaParams + "[{name: a, paramRef: {name: q, namespace: team, parameterNotFoundAction: Allow}}, " +
		"{name: b, paramRef: {selector: {}, namespace: team, parameterNotFoundAction: Allow}}]"
	anyQuotas = quotaParams + "[{name: a, paramRef: {name: q, namespace: team, parameterNotFoundAction: Allow}}, {name: " +
		"b, paramRef: {name: q, parameterNotFoundAction: Allow}}]"
)

// lookupsOf is the field lookups, with one lookup of each resource of a group.
func lookupsOf(group string, resources ...string) string {
	var out strings.Builder
	out.WriteString("lookups:\n")
	for i, resource := range resources {
		fmt.Fprintf(&out, "- {name: l%d, resource: {group: %q, version: v1, resource: %s}, storedKeys: '[\"a\"]', requestKeys: '[\"a\"]'}\n",
			i, group, resource)
	}
	return out.String()
}

// testAuthors plays authors of policies who try to get more than they are granted.
func testAuthors(t *testing.T, cp *controlplane.ControlPlane) {
	asAdmin := policiesAs(cp, "")
	grantAuthors(t, cp)
	// The admission policy counts a moment after it is stored.
	NewWithT(t).Eventually(func() error {
		_, err := dryRun(t, policiesAs(cp, "author"), policyWith(t, ownServer))
		return err
	}, timeout).Should(HaveOccurred())
	for name, tt := range map[string]struct {
		user     string
		old, new string // fields; old is stored by an administrator, if it is given
		want     string // of the refusal
	}{
		"validations": {user: "author"},
		"a backend": {
			user: "author",
			new:  ownServer,
			want: "may not use a backend at spec.backend: ask an administrator for the verb use on webhookpolicies/backend in " +
				"the API group admission.ostiary.dev",
		},
		"a backend, granted":            {user: "backend-author", new: ownServer},
		"a backend with another grant":  {user: "mutation-author", new: ownServer, want: "spec.backend"},
		"a backend of an administrator": {user: "policy-admin", new: ownServer},
		"more rules for a backend": {
			user: "author",
			old:  ownServer,
			new:  ownServer + secretRules,
			want: "spec.backend",
		},
		"less time for a backend": {
			user: "author",
			old:  ownServer,
			new:  ownServer + "\ntimeoutSeconds: 1",
			want: "spec.backend",
		},
		"more rules for a backend, granted": {user: "backend-author", old: ownServer, new: ownServer + secretRules},
		"validations instead of a backend":  {user: "author", old: ownServer, new: "backend: null"},
		"a mutation": {
			user: "author",
			new:  ownCommand,
			want: "may not use mutations at spec.mutations: ask an administrator for the verb use on webhookpolicies/mutations",
		},
		"a mutation, granted":       {user: "mutation-author", new: ownCommand},
		"more rules for a mutation": {user: "author", old: ownCommand, new: ownCommand + secretRules, want: "spec.mutations"},
		"a plugin with credentials": {
			user: "author",
			new:  quotaPlugin,
			want: "may not use the plugin ResourceQuota at spec.plugin.name: ask an administrator for the verb use on " +
				"webhookpolicies/plugins named ResourceQuota",
		},
		"a plugin with credentials, granted": {user: "quota-author", new: quotaPlugin},
		"another plugin than the one granted": {
			user: "quota-author",
			new:  "validations: null\nmatchConstraints: null\nplugin: {name: PodSecurity}",
			want: "named PodSecurity",
		},
		"a plugin that only denies": {user: "author", new: denyPlugin},
		"params": {
			user: "author",
			new:  anyQuotas,
			want: `may not read params of kind ResourceQuota at spec.paramKind: ask an administrator for the verb list on ` +
				`resourcequotas in the API group ""`,
		},
		"params of a namespace":                   {user: "author", new: quotasOfTeam, want: "resourcequotas"},
		"params of a namespace, granted":          {user: "team-author", new: quotasOfTeam},
		"params of all, granted in one namespace": {user: "team-author", new: anyQuotas, want: "resourcequotas"},
		"params of another namespace": {
			user: "team-author",
			new:  strings.Replace(quotasOfTeam, "namespace: team", "namespace: default", 1),
			want: "resourcequotas",
		},
		"params, granted": {user: "params-author", new: anyQuotas},
		"params of another kind": {
			user: "params-author",
			new:  "paramKind: {apiVersion: v1, kind: Secret}",
			want: `list on secrets in the API group ""`,
		},
		"params of a group": {
			user: "author",
			new:  "paramKind: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy}",
			want: `list on networkpolicies in the API group "networking.k8s.io"`,
		},
		"params whose kind ends in s": {
			user: "author",
			new:  "paramKind: {apiVersion: networking.k8s.io/v1, kind: Ingress}",
			want: "list on ingresses",
		},
		"params whose kind ends in endpoints": {
			user: "author",
			new:  "paramKind: {apiVersion: v1, kind: Endpoints}",
			want: "list on endpoints ",
		},
		"params whose kind ends in ey": {
			user: "author",
			new:  "paramKind: {apiVersion: example.com/v1, kind: Key}",
			want: "list on keys ",
		},
		"params whose kind ends in sh": {
			user: "author",
			new:  "paramKind: {apiVersion: example.com/v1, kind: Mesh}",
			want: "list on meshes ",
		},
		"params that are policies": {
			user: "author",
			new:  "paramKind: {apiVersion: admission.ostiary.dev/v1alpha1, kind: WebhookPolicy}",
		},
		"a lookup": {
			user: "author",
			new:  lookupsOf("networking.k8s.io", "ingresses"),
			want: `may not read ingresses for the lookup l0 at spec.lookups: ask an administrator for the verb list on ingresses in the ` +
				`API group "networking.k8s.io", in all namespaces`,
		},
		"a lookup, granted": {user: "params-author", new: lookupsOf("", "resourcequotas")},
		"a lookup in the namespace of the request, granted in one namespace": {
			user: "team-author",
			new:  lookupsOf("", "resourcequotas"),
			want: "resourcequotas",
		},
		"a lookup of the same name in another group": {
			user: "params-author",
			new:  lookupsOf("example.com", "resourcequotas"),
			want: `list on resourcequotas in the API group "example.com"`,
		},
		"the last of as many lookups as allowed": {
			user: "params-author",
			new:  lookupsOf("", append(slices.Repeat([]string{"resourcequotas"}, 9), "secrets")...),
			want: `may not read secrets for the lookup l9 at spec.lookups`,
		},
		"as many lookups as allowed, granted": {user: "params-author", new: lookupsOf("", slices.Repeat([]string{"resourcequotas"}, 10)...)},
		"other rules for a lookup": {
			user: "author", old: lookupsOf("", "resourcequotas"), new: lookupsOf("", "resourcequotas") + secretRules, want: "resourcequotas",
		},
		"no more lookups":        {user: "author", old: lookupsOf("", "resourcequotas"), new: "lookups: null"},
		"other rules for params": {user: "author", old: anyQuotas, new: anyQuotas + secretRules, want: "resourcequotas"},
	} {
		t.Run(name, func(t *testing.T) {
			policies := policiesAs(cp, tt.user)
			attempt := func() error {
				if tt.old == "" {
					_, err := dryRun(t, policies, policyWith(t, tt.new))
					return err
				}
				stored := create(t, asAdmin, policyWith(t, tt.old))
				stored.Object["spec"] = policyWith(t, tt.new).Object["spec"]
				_, err := policies.Update(t.Context(), stored, metav1.UpdateOptions{})
				return err
			}
			wantRefusal(t, attempt(), tt.want)
		})
	}
	t.Run("leave alone what leaves the spec as it is", func(t *testing.T) { testAuthorsMetadata(t, cp) })
}

// testAuthorsMetadata writes what must not need a permission: otherwise policies
// could not be labelled, deleted or reported on.
func testAuthorsMetadata(t *testing.T, cp *controlplane.ControlPlane) {
	g := NewWithT(t)
	author, asAdmin := policiesAs(cp, "author"), policiesAs(cp, "")
	policy := policyWith(t, ownServer)
	policy.SetFinalizers([]string{"example.com/held"})
	create(t, asAdmin, policy)
	merge := func(policies dynamic.ResourceInterface, patch string, sub ...string) error {
		_, err := policies.Patch(t.Context(), "p", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
		return err
	}
	g.Expect(merge(author, `{"metadata":{"labels":{"a":"b"}}}`)).To(Succeed())
	g.Expect(merge(policiesAs(cp, account), `{"status":{"observedGeneration":1}}`, "status")).To(Succeed())
	const suspension = `{"metadata":{"annotations":{"admission.ostiary.dev/suspended-until":"2027-03-01T12:00:00Z"}}}`
	const resumption = `{"metadata":{"annotations":{"admission.ostiary.dev/suspended-until":null}}}`
	const refusal = "you may not suspend the policy p with metadata.annotations[admission.ostiary.dev/suspended-until]: " +
		"ask an administrator for the verb suspend on webhookpolicies named p"
	wantRefusal(t, merge(author, suspension), refusal)
	g.Expect(merge(policiesAs(cp, "suspender"), suspension)).To(Succeed())
	wantRefusal(t, merge(author, strings.Replace(suspension, "2027", "2028", 1)), refusal)
	wantRefusal(t, merge(author, resumption), refusal)
	const skip = `{"metadata":{"annotations":{"admission.ostiary.dev/rollout":"skip b 0123"}}}`
	wantRefusal(t, merge(author, skip),
		"you may not change the rollout of the policy p with metadata.annotations[admission.ostiary.dev/rollout]: "+
			"ask an administrator for the verb rollout on webhookpolicies named p")
	wantRefusal(t, merge(policiesAs(cp, "suspender"), skip), "you may not change the rollout of the policy p")
	g.Expect(merge(policiesAs(cp, "policy-admin"), skip)).To(Succeed())
	g.Expect(merge(author, `{"metadata":{"labels":{"a":"c"}}}`)).To(Succeed())
	wantRefusal(t, merge(author, strings.Replace(skip, "skip", "complete", 1)), "you may not change the rollout of the policy p")
	g.Expect(merge(author, `{"metadata":{"annotations":{"admission.ostiary.dev/rollout":null}}}`)).To(Succeed()) // no command
	wantRefusal(t, merge(policiesAs(cp, "suspender"), `{"spec":{"timeoutSeconds":3}}`), "spec.backend")
	g.Expect(merge(policiesAs(cp, "policy-admin"), resumption)).To(Succeed())
	born := policyWith(t, ownCommand)
	born.SetAnnotations(map[string]string{"admission.ostiary.dev/suspended-until": "2027-03-01T12:00:00Z"})
	born.SetName("born-suspended")
	_, err := dryRun(t, policiesAs(cp, "mutation-author"), born)
	wantRefusal(t, err, "you may not suspend the policy born-suspended")
	g.Expect(author.Delete(t.Context(), "p", metav1.DeleteOptions{})).To(Succeed())
	g.Expect(merge(author, `{"metadata":{"finalizers":null}}`)).To(Succeed())
	g.Eventually(func() error { return merge(author, `{}`) }, timeout).Should(Satisfy(apierrors.IsNotFound))

	// The garbage collector deletes a policy whose owner goes, by way of a finalizer.
	client := kubernetes.NewForConfigOrDie(cp.Config())
	owner, err := client.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	policy = policyWith(t, ownServer)
	policy.SetOwnerReferences([]metav1.OwnerReference{
		{
			APIVersion:         "rbac.authorization.k8s.io/v1",
			Kind:               "ClusterRole",
			Name:               owner.Name,
			UID:                owner.UID,
			BlockOwnerDeletion: new(true),
		},
	})
	create(t, asAdmin, policy)
	g.Expect(client.RbacV1().ClusterRoles().Delete(t.Context(), owner.Name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)})).To(Succeed())
	g.Eventually(func() error {
		_, err := asAdmin.Get(t.Context(), "p", metav1.GetOptions{})
		return err
	}, timeout, time.Second).Should(Satisfy(apierrors.IsNotFound))
}

// wantRefusal wants a refusal whose message holds the text, or none.
func wantRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want it forbidden with %q", err, want)
	}
}

// create stores a policy for the length of a test.
func create(t *testing.T, policies dynamic.ResourceInterface, policy *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	stored, err := policies.Create(t.Context(), policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = policies.Delete(context.WithoutCancel(t.Context()), stored.GetName(), metav1.DeleteOptions{})
	})
	return stored
}

// policiesAs is a client for policies of a user, "" for a member of system:masters.
func policiesAs(cp *controlplane.ControlPlane, user string) dynamic.ResourceInterface {
	config := rest.CopyConfig(cp.Config())
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	return dynamic.NewForConfigOrDie(config).Resource(v1alpha1.GroupVersion.WithResource("webhookpolicies"))
}

// grantAuthors gives every user who writes policies the role for authors, or for
// administrators, and some of them one permission more.
func grantAuthors(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	g := NewWithT(t)
	roles := kubernetes.NewForConfigOrDie(cp.Config()).RbacV1()
	bind := func(role string, users ...string) {
		t.Helper()
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "authors-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		for _, user := range users {
			binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		}
		_, err := roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	grant := func(user string, rule rbacv1.PolicyRule) {
		t.Helper()
		_, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			Rules:      []rbacv1.PolicyRule{rule},
		}, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		bind(user, user)
	}
	use := func(subresource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups:     []string{v1alpha1.GroupName},
			Resources:     []string{"webhookpolicies/" + subresource},
			ResourceNames: names,
			Verbs:         []string{"use"},
		}
	}
	bind("webhookpolicy-author", "author", "backend-author", "mutation-author", "quota-author", "team-author", "params-author", "suspender")
	bind("webhookpolicy-admin", "policy-admin")
	grant("backend-author", use("backend"))
	grant("mutation-author", use("mutations"))
	grant("quota-author", use("plugins", "ResourceQuota"))
	grant("suspender", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"webhookpolicies"}, ResourceNames: []string{"p"}, Verbs: []string{"suspend"},
	})
	grant("params-author", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"resourcequotas"}, Verbs: []string{"list"}})
	for _, args := range [][]string{
		{"create", "namespace", "team"},
		{"-n", "team", "create", "rolebinding", "list-quotas", "--clusterrole=params-author", "--user=team-author"},
	} {
		if _, stderr, err := kubectl(t, cp, args...); err != nil {
			t.Fatalf("granting: %v %s", err, stderr)
		}
	}
}
