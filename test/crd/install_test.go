package crd

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/ostiary/ostiary/controllers/leadership"
	"github.com/ostiary/ostiary/controllers/replicas"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/test/controlplane"
)

const (
	namespace = "ostiary-system"
	timeout   = time.Minute
)

// kubectl runs the real kubectl, and returns what it wrote to stdout and stderr.
func kubectl(t *testing.T, cp *controlplane.ControlPlane, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), cp.Kubectl(), append([]string{"--kubeconfig", cp.Kubeconfig()}, args...)...)
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err = command.Run()
	return out.String(), errs.String(), err
}

// install applies config/default as its users do, and demands that the API
// server has nothing to warn about.
func install(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	stdout, stderr, err := kubectl(t, cp, "apply", "--server-side", "--validate=strict", "-k", installDir)
	if err != nil || stderr != "" {
		t.Fatalf("installing: %v\n%s%s", err, stdout, stderr)
	}
	for _, resource := range []string{"webhookpolicies", "webhookpolicyexceptions", "clusterwebhookpolicyexceptions"} {
		crd := "crd/" + resource + ".admission.ostiary.dev"
		_, stderr, err = kubectl(t, cp, "wait", "--for=condition=Established", "--timeout=60s", crd)
		if err != nil {
			t.Fatalf("waiting for the CRD: %v\n%s", err, stderr)
		}
		status, stderr, err := kubectl(t, cp, "get", crd, "-o", `jsonpath={.status.conditions[?(@.type=="NonStructuralSchema")]}`)
		if err != nil || status != "" {
			t.Errorf("the schema of %s is not structural: %s %s %v", resource, status, stderr, err)
		}
	}
}

func testExplain(t *testing.T, cp *controlplane.ControlPlane) {
	for path, want := range map[string]string{
		"whp":                       "WebhookPolicy decides API requests with CEL expressions.",
		"whp.spec":                  "matchConstraints selects requests by resource, operation, namespace labels",
		"whp.spec.matchConstraints": "namespaceSelector limits the policy to namespaces",
		"whp.spec.matchConstraints.resourceRules": "resources are the plural names of the resources",
		"whp.spec.matchConditions.expression":     "If it is false, the policy skips the request.",
		"whp.spec.validations":                    "expression is CEL and must give a bool",
		"whp.spec.validations.reason":             "Unauthorized\n    Forbidden",
		"whp.spec.bindings.validationActions":     "Deny denies it, Warn lets it pass with a warning",
		"whp.spec.paramKind.apiVersion":           "v1 for the core group",
		"whp.spec.bindings":                       "Without bindings, there is one with validationActions [Deny].",
		"whp.spec.bindings.paramRef":              "parameterNotFoundAction applies if there are no such params.",
		"whp.spec.bindings.paramRef.namespace":    "Default: the namespace of the request",
		"whp.spec.bindings.paramRef.selector":     "{} selects all.",
		"whp.spec.bindings.matchResources":        "resourceRules select operations on resources",
		"whp.spec.mutations":                      "ApplyConfiguration: fields to merge into the object, as server-side apply does.",
		"whp.spec.mutations.applyConfiguration":   `Example: Object{metadata: Object.metadata{labels: {"tier": "web"}}}`,
		"whp.spec.mutations.jsonPatch":            `[JSONPatch{op: "replace", path: "/spec/replicas", value: 2}]`,
		"whp.spec.backend":                        "caFrom names the object that holds the CA bundle.",
		"whp.spec.auditAnnotations":               "<webhook>/<policy>.<key>",
		"whp.spec.reinvocationPolicy":             "Default Never.",
		"whp.spec.order":                          "lower",
		"whp.status.typeChecking":                 "expressionWarnings hold the problems of single expressions.",
		"whp.status.webhooks":                     "configuration is the name of the configuration object.",
		"whp.spec.exceptions":                     "maxDurationSeconds limits how long an exception lasts",
		"whpe.spec":                               `"*" stands for all`,
		"whpe.spec.match.objectSelector":          "matchLabels are labels that must all be present",
		"cwhpe.spec.condition":                    "The exception has no effect where it is false or fails.",
	} {
		t.Run(path, func(t *testing.T) {
			// The API server publishes the schema a moment after it serves the kind.
			var got string
			NewWithT(t).Eventually(func() error {
				var err error
				got, _, err = kubectl(t, cp, "explain", path)
				return err
			}, timeout, time.Second).Should(Succeed())
			if !strings.Contains(unwrap(got), unwrap(want)) {
				t.Errorf("got:\n%s\nwant it to hold %q", got, want)
			}
		})
	}
}

// unwrap undoes kubectl's line breaks.
func unwrap(text string) string { return strings.Join(strings.Fields(text), " ") }

// permission is "verb resource.group/name in namespace", the last three optional.
type permission struct {
	verb, group, resource, subresource, name, namespace string
}

func (p permission) String() string {
	return strings.Join(strings.Fields(strings.Join([]string{p.verb, p.group, p.resource, p.subresource, p.name, p.namespace}, " ")), " ")
}

func testPermissions(t *testing.T, cp *controlplane.ControlPlane) {
	const (
		ours      = "admission.ostiary.dev"
		admission = "admissionregistration.k8s.io"
		leases    = "coordination.k8s.io"
	)
	allowed := []permission{
		{"list", ours, "webhookpolicies", "", "", ""},
		{"watch", ours, "webhookpolicies", "", "", ""},
		{"patch", ours, "webhookpolicies", "status", "p", ""},
		{"list", ours, "webhookpolicyexceptions", "", "", ""},
		{"watch", ours, "clusterwebhookpolicyexceptions", "", "", ""},
		{"patch", ours, "webhookpolicyexceptions", "status", "e", "default"},
		{"patch", ours, "clusterwebhookpolicyexceptions", "status", "e", ""},
		{"watch", admission, "validatingadmissionpolicies", "", "ostiary-policy-exceptions", ""},
		{"list", admission, "validatingadmissionpolicybindings", "", "ostiary-policy-exceptions", ""},
		{"create", admission, "validatingwebhookconfigurations", "", "", ""},
		{"patch", admission, "validatingwebhookconfigurations", "", "any", ""},
		{"delete", admission, "validatingwebhookconfigurations", "", "any", ""},
		{"create", admission, "mutatingwebhookconfigurations", "", "", ""},
		{"patch", admission, "mutatingwebhookconfigurations", "", "any", ""},
		{"delete", admission, "mutatingwebhookconfigurations", "", "any", ""},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", ""},
		{"get", "apiextensions.k8s.io", "customresourcedefinitions", "", "webhookpolicies.admission.ostiary.dev", ""},
		{"watch", "", "namespaces", "", "", ""},
		{"watch", "storage.k8s.io", "storageclasses", "", "", ""},
		{"watch", "networking.k8s.io", "ingressclasses", "", "", ""},
		{"list", "", "pods", "", "", ""},
		{"get", "", "services", "", "checks", "shop"},
		{"create", "events.k8s.io", "events", "", "", "default"},
		{"patch", "events.k8s.io", "events", "", "e", "default"},
		{"create", leases, "leases", "", "", namespace},
		{"update", leases, "leases", "", leadership.LeaseName, namespace},
		{"patch", leases, "leases", "", replicas.LeaseName("ostiary-0"), namespace},
		{"watch", leases, "leases", "", "", namespace},
		{"delete", leases, "leases", "", replicas.LeaseName("ostiary-0"), namespace},
		{"create", "", "secrets", "", "", namespace},
		{"create", "", "configmaps", "", "", namespace},
		{"watch", "discovery.k8s.io", "endpointslices", "", "kubernetes", "default"},
		{"watch", "", "secrets", "", "ostiary-ca", namespace},
		{"list", "", "secrets", "", "ostiary-serving", namespace},
		{"update", "", "secrets", "", "ostiary-serving", namespace},
		{"update", "", "secrets", "", "ostiary-backend-ca", namespace},
		{"impersonate", "", "serviceaccounts", "", "ostiary-params", namespace},
		{"impersonate", "", "serviceaccounts", "", "ostiary-lookups", namespace},
		{"impersonate", "", "serviceaccounts", "", "ostiary-audit", namespace},
	}
	denied := []permission{
		{"patch", ours, "webhookpolicies", "", "p", ""},
		{"delete", ours, "webhookpolicies", "", "p", ""},
		{"create", ours, "webhookpolicyexceptions", "", "", "default"},
		{"patch", ours, "webhookpolicyexceptions", "", "e", "default"},
		{"use", ours, "webhookpolicies", "exceptions", "p", "default"},
		{"patch", admission, "validatingadmissionpolicies", "", "ostiary-policy-exceptions", ""},
		{"list", admission, "validatingadmissionpolicies", "", "", ""},
		{"update", admission, "validatingadmissionpolicies", "", "p", ""},
		{"update", admission, "mutatingadmissionpolicies", "", "p", ""},
		{"deletecollection", admission, "validatingwebhookconfigurations", "", "", ""},
		{"deletecollection", admission, "mutatingwebhookconfigurations", "", "", ""},
		{"patch", "apiextensions.k8s.io", "customresourcedefinitions", "", "webhookpolicies.admission.ostiary.dev", ""},
		{"get", "apiextensions.k8s.io", "customresourcedefinitions", "", "other.example.com", ""},
		{"list", "", "configmaps", "", "", ""},
		{"get", "", "configmaps", "", "allowed-teams", "default"},
		{"update", ours, "webhookpolicies", "status", "p", ""},
		{"patch", "", "secrets", "", "ostiary-ca", namespace},
		{"create", "", "events", "", "", "default"},
		{"get", "", "secrets", "", "other", namespace},
		{"list", "", "secrets", "", "", namespace},
		{"delete", "", "secrets", "", "ostiary-ca", namespace},
		{"get", "", "secrets", "", "ostiary-ca", "default"},
		{"create", "", "secrets", "", "", "default"},
		{"update", leases, "leases", "", "kube-scheduler", "kube-system"},
		{"list", leases, "leases", "", "", "kube-node-lease"},
		{"watch", "", "pods", "", "", ""},
		{"list", "", "services", "", "", ""},
		{"get", "", "secrets", "", "checks-ca", "shop"},
		{"create", "", "configmaps", "", "", "default"},
		{"list", "discovery.k8s.io", "endpointslices", "", "", "default"},
		{"create", "", "serviceaccounts", "token", "ostiary", namespace},
		{"update", "", "namespaces", "", "default", ""},
		{"impersonate", "", "serviceaccounts", "", "default", namespace},
		{"impersonate", "", "serviceaccounts", "", "ostiary-params", "default"},
		{"impersonate", "", "serviceaccounts", "", "ostiary-lookups", "default"},
		{"impersonate", "", "users", "", "admin", ""},
		{"impersonate", "", "groups", "", "system:masters", ""},
		{"escalate", "rbac.authorization.k8s.io", "clusterroles", "", "ostiary", ""},
	}
	testAccess(t, cp, account, nil, allowed, true)
	testAccess(t, cp, account, nil, denied, false)
}

// account is the manager's user.
const account = "system:serviceaccount:" + namespace + ":ostiary"

// paramsAccount is the user whose permissions hold for params.
const paramsAccount = account + "-params"

// testParamsPermissions asks what the manager may do with the sample for params
// applied, before and after an upgrade.
func testParamsPermissions(t *testing.T, cp *controlplane.ControlPlane) {
	allowed := []permission{
		{"get", "", "configmaps", "", "allowed-teams", "default"},
		{"list", "", "configmaps", "", "", ""},
		{"watch", "", "configmaps", "", "", ""},
	}
	denied := []permission{
		{"update", "", "configmaps", "", "allowed-teams", "default"},
		{"list", "", "secrets", "", "", ""},
	}
	testAccess(t, cp, paramsAccount, nil, allowed, true)
	install(t, cp)
	testAccess(t, cp, paramsAccount, nil, allowed, true)
	testAccess(t, cp, paramsAccount, nil, denied, false)
	testAccess(t, cp, account, nil, allowed, false) // but by impersonation
}

// testAuditPermissions asks what the account of the audit may do.
func testAuditPermissions(t *testing.T, cp *controlplane.ControlPlane) {
	const auditAccount = account + "-audit"
	testAccess(t, cp, auditAccount, nil, []permission{
		{verb: "list", resource: "pods"}, {
			verb:     "watch",
			group:    "apps",
			resource: "deployments",
		}, {verb: "list", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	}, true)
	testAccess(t, cp, auditAccount, nil, []permission{
		{"list", "", "secrets", "", "", ""}, {"get", "", "pods", "", "p", "default"}, {"update", "", "configmaps", "", "c", "default"},
	}, false)
	testAccess(t, cp, account, nil, []permission{{"list", "apps", "deployments", "", "", ""}}, false) // but by impersonation
}

// testUserPermissions binds the roles for people to groups and asks what those
// may do.
func testUserPermissions(t *testing.T, cp *controlplane.ControlPlane) {
	const group, resource = "admission.ostiary.dev", "webhookpolicies"
	for _, role := range []string{
		"webhookpolicy-viewer", "webhookpolicy-author", "webhookpolicy-admin", "webhookpolicyexception-editor", "edit", "admin",
	} {
		if _, stderr, err := kubectl(t, cp, "create", "clusterrolebinding", role, "--clusterrole="+role, "--group="+role); err != nil {
			t.Fatalf("binding %s: %v %s", role, err, stderr)
		}
	}
	read := []permission{
		{"get", group, resource, "", "p", ""}, {"list", group, resource, "", "", ""},
		{"get", group, resource, "status", "p", ""},
	}
	readExceptions := []permission{
		{"list", group, "webhookpolicyexceptions", "", "", ""}, {"get", group, "clusterwebhookpolicyexceptions", "status", "e", ""},
	}
	writeExceptions := []permission{
		{"create", group, "webhookpolicyexceptions", "", "", "default"}, {"patch", group, "clusterwebhookpolicyexceptions", "", "e", ""},
	}
	useExceptions := []permission{{"use", group, resource, "exceptions", "p", "default"}}
	write := []permission{
		{"create", group, resource, "", "", ""}, {"patch", group, resource, "", "p", ""},
		{"delete", group, resource, "", "p", ""},
	}
	breakGlass := []permission{{"breakglass", group, resource, "", "p", ""}}
	writeStatus := []permission{{"patch", group, resource, "status", "p", ""}}
	testAccess(t, cp, "viewer", []string{"webhookpolicy-viewer"}, read, true)
	testAccess(t, cp, "viewer", []string{"webhookpolicy-viewer"}, write, false)
	use := []permission{
		{"use", group, resource, "backend", "", ""}, {"use", group, resource, "mutations", "", ""},
		{"use", group, resource, "plugins", "PodSecurity", ""},
	}
	for _, role := range []string{"webhookpolicy-author", "webhookpolicy-admin"} {
		testAccess(t, cp, "writer", []string{role}, slices.Concat(read, write), true)
		testAccess(t, cp, "writer", []string{role}, slices.Concat(breakGlass, writeStatus), false)
		testAccess(t, cp, "writer", []string{role}, use, role == "webhookpolicy-admin")
	}
	testAccess(t, cp, "editor", []string{"webhookpolicyexception-editor"}, slices.Concat(readExceptions, writeExceptions), true)
	testAccess(t, cp, "editor", []string{"webhookpolicyexception-editor"}, slices.Concat(useExceptions, write), false)
	testAccess(t, cp, "writer", []string{"webhookpolicy-admin"}, slices.Concat(writeExceptions, useExceptions), true)
	testAccess(t, cp, "writer", []string{"webhookpolicy-author"}, slices.Concat(writeExceptions, useExceptions), false)
	for _, role := range []string{"edit", "admin"} {
		testAccess(t, cp, "tenant", []string{role}, slices.Concat(writeExceptions, useExceptions), false)
	}
	if _, stderr, err := kubectl(t, cp, "create", "clusterrolebinding", "readers", "--clusterrole=view", "--group=readers"); err != nil {
		t.Fatalf("binding view: %v %s", err, stderr)
	}
	testAccess(t, cp, "reader", []string{"readers"}, slices.Concat(read, readExceptions), true)
	testAccess(t, cp, "reader", []string{"readers"}, slices.Concat(write, writeExceptions, useExceptions), false)
}

// testAccess asks the API server whether a user may do each of the actions. New
// roles count a moment after they are stored, so what should be allowed is
// asked for until it is.
func testAccess(t *testing.T, cp *controlplane.ControlPlane, user string, groups []string, actions []permission, want bool) {
	client := kubernetes.NewForConfigOrDie(cp.Config())
	for _, p := range actions {
		t.Run(user+" "+p.String(), func(t *testing.T) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: p.verb, Group: p.group, Resource: p.resource, Subresource: p.subresource, Name: p.name, Namespace: p.namespace,
				},
			}}
			ask := func(g Gomega) {
				got, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(got.Status.Allowed).To(Equal(want))
			}
			NewWithT(t).Eventually(ask, timeout).Should(Succeed())
		})
	}
}

// testPod creates the Deployment's pod by hand, to see what is said about it: the
// namespace enforces the restricted Pod Security Standard. Its arguments are
// given to the manager's own flags.
func testPod(t *testing.T, cp *controlplane.ControlPlane) {
	g := NewWithT(t)
	client := kubernetes.NewForConfigOrDie(cp.Config())
	deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "ostiary", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(change func(*corev1.PodSpec)) error {
		pod := podOf(deployment)
		change(&pod.Spec)
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	// The priority class is made by the API server itself, a moment after its start.
	g.Eventually(func() error { return create(func(*corev1.PodSpec) {}) }, timeout).Should(Succeed())
	err = create(func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil })
	if err == nil || !strings.Contains(err.Error(), "allowPrivilegeEscalation") {
		t.Errorf("a pod that is not restricted: got %v, want it refused", err)
	}
	testFlags(t, deployment)
}

func podOf(deployment *appsv1.Deployment) *corev1.Pod {
	template := deployment.Spec.Template.DeepCopy()
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: template.Labels}, Spec: template.Spec}
}

func testFlags(t *testing.T, deployment *appsv1.Deployment) {
	var o options.Options
	flags := pflag.NewFlagSet("ostiary", pflag.ContinueOnError)
	o.Bind(flags)
	var args []string
	for _, arg := range deployment.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", namespace))
	}
	if err := flags.Parse(args); err != nil {
		t.Fatalf("the manager refuses the Deployment's arguments: %v", err)
	}
	if err := o.Validate(); err != nil {
		t.Errorf("the manager refuses the Deployment's arguments: %v", err)
	}
}
