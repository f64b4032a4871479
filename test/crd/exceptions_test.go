package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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

// exceptionOwner may use exceptions of the policy require-team in the namespace billing only, and
// exceptionAdmin in all namespaces. exceptionStar has a Role with "*" on all groups there.
const (
	exceptionOwner  = "exception-owner"
	exceptionAdmin  = "exception-admin"
	exceptionEditor = "exception-editor"
	exceptionStar   = "exception-star"
)

const baseException = `
policyName: require-team
validations: [has-team]
match: [{group: apps, resources: [deployments]}]
reason: "BILL-1: the chart cannot set labels"
`

// exceptionWith is a valid exception whose spec has the given fields, in YAML, instead of its own.
// It is of the cluster kind without a namespace.
func exceptionWith(t *testing.T, namespace, fields string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{}
	for _, document := range []string{baseException, fields} {
		for name, value := range parse(t, document).Object {
			spec[name] = value
		}
	}
	metadata, kind := map[string]any{"name": "e"}, "ClusterWebhookPolicyException"
	if namespace != "" {
		metadata["namespace"], kind = namespace, "WebhookPolicyException"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata, "spec": spec,
	}}
}

// exceptionsAs is a client for exceptions of a user, "" for a member of system:masters.
func exceptionsAs(cp *controlplane.ControlPlane, user, namespace string) dynamic.ResourceInterface {
	config := rest.CopyConfig(cp.Config())
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	client := dynamic.NewForConfigOrDie(config)
	if namespace == "" {
		return client.Resource(v1alpha1.GroupVersion.WithResource("clusterwebhookpolicyexceptions"))
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("webhookpolicyexceptions")).Namespace(namespace)
}

func testExceptions(t *testing.T, cp *controlplane.ControlPlane) {
	for name, tc := range map[string]struct {
		fields string
		want   []string
	}{
		"the example": {fields: `
validations: [has-team, "*"]
match:
- {group: apps, resources: [deployments, statefulsets/scale], names: [billing-web, "web-*"]}
- {group: "", resources: [pods], objectSelector: {matchLabels: {app: billing-web}, matchExpressions: [{key: a, operator: Exists}]}}
condition: object.spec.replicas < 3
expirationTime: "2027-03-01T00:00:00Z"`},
		"no policy":      {"policyName: null", []string{"spec.policyName: Required value"}},
		"no validations": {"validations: null", []string{"spec.validations: Required value"}},
		"empty validations": {"validations: []", []string{
			"spec.validations: Invalid value: 0: spec.validations in body should have at least 1 items",
		}},
		"a pattern of validations": {"validations: [has-*]", []string{
			`spec.validations[0]: Invalid value: "has-*": write the name of a validation, or '*' for all`,
		}},
		"a validation twice": {"validations: [a, a]", []string{`spec.validations[1]: Duplicate value: "a"`}},
		"101 validations": {"validations: " + repeat(101, "v%d"),
			[]string{"spec.validations: Too many: 101: must have at most 100 items"}},
		"no match":   {"match: null", []string{"spec.match: Required value"}},
		"17 matches": {"match: " + repeat(17, "{resources: [r%d]}"), []string{"spec.match: Too many: 17: must have at most 16 items"}},
		"all resources": {"match: [{resources: ['*']}]", []string{
			`spec.match[0].resources[0]: Invalid value: "*": write a plural name, such as deployments or pods/exec, without wildcards`,
		}},
		"all subresources": {"match: [{resources: ['pods/*']}]", []string{
			`spec.match[0].resources[0]: Invalid value: "pods/*": write a plural name, such as deployments or pods/exec, without wildcards`,
		}},
		"a name with two patterns": {"match: [{resources: [pods], names: ['*a*']}]", []string{
			`spec.match[0].names[0]: Invalid value: "*a*": ` +
				"write at most one '*'",
		}},
		"a label key with a space": {"match: [{resources: [pods], objectSelector: {matchExpressions: [{key: a b, operator: Exists}]}}]",
			[]string{`spec.match[0].objectSelector.matchExpressions[0].key: Invalid value: "a b": ` +
				"spec.match[0].objectSelector.matchExpressions[0].key in body should match " +
				`'^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$'`}},
		"In without values": {"match: [{resources: [pods], objectSelector: {matchExpressions: [{key: a, operator: In}]}}]",
			[]string{"spec.match[0].objectSelector.matchExpressions[0].values: Required value: add at least one value: the operators " +
				"In and NotIn need them"}},
		"a condition too long": {"condition: " + long(4097), []string{"spec.condition: Too long: may not be more than 4096 bytes"}},
		"no reason":            {"reason: null", []string{"spec.reason: Required value"}},
		"a blank reason":       {"reason: '  '", []string{"spec.reason: Required value: write why the exception exists"}},
		"no time": {"expirationTime: tomorrow", []string{
			`spec.expirationTime: Invalid value: "tomorrow": spec.expirationTime in body must be of type date-time: "tomorrow"`,
		}},
	} {
		for kind, namespace := range map[string]string{"in a namespace": "default", "of the cluster": ""} {
			t.Run(name+" "+kind, func(t *testing.T) {
				var got []string
				_, err := dryRun(t, exceptionsAs(cp, "", namespace), exceptionWith(t, namespace, tc.fields))
				if err != nil {
					got = causes(t, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("causes (-want +got):\n%s", diff)
				}
			})
		}
	}
	t.Run("of another policy", func(t *testing.T) {
		exceptions := exceptionsAs(cp, "", "default")
		stored := create(t, exceptions, exceptionWith(t, "default", ""))
		stored.Object["spec"] = exceptionWith(t, "default", "policyName: other").Object["spec"]
		_, err := exceptions.Update(t.Context(), stored, metav1.UpdateOptions{})
		if err == nil || !strings.Contains(err.Error(), "policyName cannot be changed: create another exception") {
			t.Errorf("got %v, want the other policy refused", err)
		}
	})
}

// testExceptionGuard plays users who except objects of policies for which they have no permission.
func testExceptionGuard(t *testing.T, cp *controlplane.ControlPlane) {
	grantExceptions(t, cp)
	const (
		inBilling = "may not use exceptions of the policy require-team at spec.policyName: ask an administrator for the verb use on " +
			"webhookpolicies/exceptions named require-team in the API group admission.ostiary.dev, in the namespace billing"
		other = "policyName: other"
	)
	// The admission policy counts a moment after it is stored.
	NewWithT(t).Eventually(func() error {
		_, err := dryRun(t, exceptionsAs(cp, exceptionEditor, "billing"), exceptionWith(t, "billing", ""))
		return err
	}, timeout).Should(HaveOccurred())
	for name, tc := range map[string]struct {
		user, namespace, fields string
		want                    string
	}{
		"without use":               {user: exceptionEditor, namespace: "billing", want: inBilling},
		"with use":                  {user: exceptionOwner, namespace: "billing"},
		"with use, another policy":  {user: exceptionOwner, namespace: "billing", fields: other, want: "named other"},
		"use in another namespace":  {user: exceptionOwner, namespace: "checkout", want: ", in the namespace checkout"},
		"use in one, the cluster":   {user: exceptionOwner, want: ", in all namespaces"},
		"use in all, the cluster":   {user: exceptionAdmin},
		"use in all, one namespace": {user: exceptionAdmin, namespace: "checkout"},
		"a Role with *":             {user: exceptionStar, namespace: "billing", fields: other},
		"a Role with *, elsewhere":  {user: exceptionStar, namespace: "checkout", want: ", in the namespace checkout"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dryRun(t, exceptionsAs(cp, tc.user, tc.namespace), exceptionWith(t, tc.namespace, tc.fields))
			wantRefusal(t, err, tc.want)
			// Every way to create one, in every served version.
			manifest := exceptionWith(t, tc.namespace, tc.fields)
			_, err = exceptionsAs(cp, tc.user, tc.namespace).Apply(t.Context(), "e", manifest,
				metav1.ApplyOptions{FieldManager: "test", DryRun: []string{metav1.DryRunAll}})
			wantRefusal(t, err, tc.want)
		})
	}
	t.Run("changes", func(t *testing.T) { testExceptionChanges(t, cp, inBilling) })
}

// testExceptionChanges changes a stored exception without the permission in every way.
func testExceptionChanges(t *testing.T, cp *controlplane.ControlPlane, want string) {
	stored := create(t, exceptionsAs(cp, exceptionOwner, "billing"), exceptionWith(t, "billing", ""))
	editor := exceptionsAs(cp, exceptionEditor, "billing")
	patch := func(kind types.PatchType, body string, sub ...string) error {
		_, err := editor.Patch(t.Context(), "e", kind, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	longer := stored.DeepCopy()
	longer.Object["spec"] = exceptionWith(t, "billing", "reason: other").Object["spec"]
	_, err := editor.Update(t.Context(), longer, metav1.UpdateOptions{})
	wantRefusal(t, err, want)
	wantRefusal(t, patch(types.MergePatchType, `{"spec":{"validations":["*"]}}`), want)
	wantRefusal(t, patch(types.JSONPatchType, `[{"op":"replace","path":"/spec/reason","value":"other"}]`), want)
	applied := exceptionWith(t, "billing", "expirationTime: '2099-01-01T00:00:00Z'")
	_, err = editor.Apply(t.Context(), "e", applied, metav1.ApplyOptions{FieldManager: "test", Force: true})
	wantRefusal(t, err, want)
	// What must not need the permission.
	wantRefusal(t, patch(types.MergePatchType, `{"metadata":{"labels":{"a":"b"}}}`), "")
	wantRefusal(t, patch(types.MergePatchType, `{"status":{"used":1}}`, "status"), "cannot patch resource")
	if err := editor.Delete(t.Context(), "e", metav1.DeleteOptions{}); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

func grantExceptions(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cp.Config()).RbacV1()
	for name, rule := range map[string]rbacv1.PolicyRule{
		"use-require-team": {
			APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"webhookpolicies/exceptions"},
			ResourceNames: []string{"require-team"}, Verbs: []string{"use"},
		},
		"everything": {APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	} {
		_, err := client.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	const editorRole = "webhookpolicyexception-editor"
	namespaces := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Namespaces()
	for _, name := range []string{"billing", "checkout"} {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) { // as one of the examples
			t.Fatal(err)
		}
	}
	var commands [][]string
	for _, user := range []string{exceptionOwner, exceptionAdmin, exceptionEditor} {
		commands = append(commands, []string{"create", "clusterrolebinding", "edit-" + user, "--clusterrole=" + editorRole, "--user=" + user})
	}
	commands = append(commands,
		[]string{"-n", "billing", "create", "rolebinding", "use", "--clusterrole=use-require-team", "--user=" + exceptionOwner},
		[]string{"create", "clusterrolebinding", "use", "--clusterrole=use-require-team", "--user=" + exceptionAdmin},
		[]string{"-n", "billing", "create", "rolebinding", "star", "--clusterrole=everything", "--user=" + exceptionStar},
		[]string{"-n", "checkout", "create", "rolebinding", "star", "--clusterrole=" + editorRole, "--user=" + exceptionStar})
	for _, args := range commands {
		if _, stderr, err := kubectl(t, cp, args...); err != nil {
			t.Fatalf("granting: %v %s", err, stderr)
		}
	}
	// New roles count a moment after they are stored.
	NewWithT(t).Eventually(func() error {
		for _, user := range []struct{ name, namespace string }{{exceptionOwner, "billing"}, {exceptionAdmin, ""}, {exceptionStar, "billing"}} {
			if _, err := dryRun(t, exceptionsAs(cp, user.name, user.namespace), exceptionWith(t, user.namespace, "")); err != nil {
				return fmt.Errorf("%s: %w", user.name, err)
			}
		}
		return nil
	}, timeout, time.Second).Should(Succeed())
}
