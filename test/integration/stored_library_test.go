package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	auditOracle = "audit-of-library" // the user agent of dry runs
	developers  = "team-"            // begins the names of namespaces
)

// TestAuditOfLibrary compares every number of the audit of the policy library with dry runs of
// every object of the cluster: an update that changes nothing, and a creation. The API server
// records in its audit log which policies each of them violates. The long form has all policies
// and 300 Deployments with as many Pods.
func TestAuditOfLibrary(t *testing.T) {
	namespaces, each, timeout := 15, 20, 20*time.Minute
	policies := libraryPolicies(t)
	if testing.Short() {
		namespaces, each, timeout = 2, 8, deadline
		maps.DeleteFunc(policies, func(_ string, p *v1alpha1.WebhookPolicy) bool {
			return p.Labels["admission.ostiary.dev/library"] != "best-practices"
		})
	}
	c := install(t)
	c.withoutReports(t)
	c.restarted(t, "--audit-interval=1h")
	c.manager(t)
	c.createWorkloads(t, namespaces, each)
	c.enforce(t, slices.Collect(maps.Values(policies))...)

	want := c.dryRunCounts(t, policies)
	NewWithT(t).Eventually(func() error {
		got, err := c.auditSummaries(t.Context(), want)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("violations in dry runs and in the status (-want +got):\n%s", diff)
		}
		return nil
	}).WithTimeout(timeout).WithPolling(time.Second).Should(Succeed())
	found := 0
	for _, summary := range want {
		if summary != "0" {
			found++
		}
	}
	t.Logf("%d of %d policies have a number, %d of them violations", len(want), len(policies), found)
	if found < len(policies)/4 {
		t.Errorf("only %d of %d policies find anything", found, len(policies))
	}
}

// libraryPolicies returns the validating policies of the library by name, without those that look up other objects.
func libraryPolicies(t *testing.T) map[string]*v1alpha1.WebhookPolicy {
	t.Helper()
	out := map[string]*v1alpha1.WebhookPolicy{}
	for category, suites := range librarySuites(t) {
		if category == "mutations" || category == "references" {
			continue
		}
		for _, s := range suites {
			text, err := os.ReadFile("../../" + libraryDocument(s))
			must(t, err)
			p := &v1alpha1.WebhookPolicy{}
			must(t, yaml.UnmarshalStrict(text, p))
			out[p.Name] = p
		}
	}
	return out
}

// withoutReports removes the kinds of reports, which would be objects of the cluster that change
// during the test, and waits until no namespace of another test is being deleted.
func (c *cluster) withoutReports(t *testing.T) {
	t.Helper()
	if c.shared != nil {
		c.shared.kill()
	}
	for _, kind := range []string{"reports", "clusterreports"} {
		args := []string{"delete", "crd", kind + ".openreports.io", "--ignore-not-found"}
		if _, errOut, err := c.kubectl(t.Context(), "", args...); err != nil {
			t.Fatalf("kubectl %v: %v: %s", args, err, errOut)
		}
	}
	await(t).Eventually(func() error {
		var list corev1.NamespaceList
		if err := c.List(t.Context(), &list); err != nil {
			return err
		}
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				return fmt.Errorf("namespace %s is being deleted", ns.Name)
			}
		}
		return nil
	}).WithTimeout(10 * time.Minute).Should(Succeed()) // other tests have hundreds
}

// workload returns a Deployment, which creates no Pods, and a Pod, with planted faults.
func workload(namespace string, i int) []*unstructured.Unstructured {
	name := fmt.Sprintf("app-%03d", i)
	image := fmt.Sprintf("registry.example.com/app%d:1.%d", i, i)
	container := map[string]any{"name": "app", "image": image}
	spec := map[string]any{"containers": []any{container}}
	for every, plant := range map[int]func(){
		7:  func() { container["image"] = "app:latest" },
		29: func() { container["securityContext"] = map[string]any{"privileged": true} },
		31: func() { spec["hostNetwork"] = true },
		37: func() {
			spec["volumes"] = []any{map[string]any{"name": "h", "hostPath": map[string]any{"path": "/var/run"}}}
		},
	} {
		if i%every == 0 {
			plant()
		}
	}
	if i%3 != 0 {
		requests := map[string]any{"cpu": "100m", "memory": "64Mi"}
		container["resources"] = map[string]any{"requests": requests, "limits": map[string]any{"memory": "128Mi"}}
	}
	if i%5 != 0 {
		container["readinessProbe"] = map[string]any{"httpGet": map[string]any{"path": "/", "port": int64(80)}}
	}
	labels := map[string]any{"app": name}
	object := func(apiVersion, kind, name string, spec map[string]any) *unstructured.Unstructured {
		metadata := map[string]any{"namespace": namespace, "name": name, "labels": labels}
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata, "spec": spec}}
		return u.DeepCopy()
	}
	template := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": spec}
	return []*unstructured.Unstructured{
		object("apps/v1", "Deployment", name, map[string]any{
			"replicas": int64(1 + i%3), "paused": true, "selector": map[string]any{"matchLabels": labels}, "template": template,
		}),
		object("v1", "Pod", name+"-x", spec),
	}
}

// otherObjects violate policies that are not about Pods. None of them starts Pods.
const otherObjects = `
- {apiVersion: v1, kind: Service, metadata: {name: node-port}, spec: {type: NodePort, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: balancer}, spec: {type: LoadBalancer, ports: [{port: 80}]}}
- {apiVersion: v1, kind: Service, metadata: {name: external}, spec: {type: ExternalName, externalName: example.com}}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: mounted}, automountServiceAccountToken: true}
- {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: huge}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 9Ti}}}}
- apiVersion: networking.k8s.io/v1
  kind: Ingress
  metadata: {name: plain}
  spec: {rules: [{host: "*.example.com", http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: open}
  spec: {podSelector: {}, ingress: [{}]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: everything}
  rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}, {apiGroups: [""], resources: [secrets, pods/exec], verbs: [get, create]}]
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: everyone}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: everything}
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}, {kind: ServiceAccount, name: default}]
`

// createWorkloads creates namespaces with workloads and other objects.
func (c *cluster) createWorkloads(t *testing.T, namespaces, each int) {
	t.Helper()
	for n := range namespaces {
		ns := &corev1.Namespace{}
		ns.GenerateName, ns.Labels = developers, map[string]string{"tier": []string{"prod", "dev", "dev"}[n%3]}
		must(t, c.Create(t.Context(), ns))
		t.Cleanup(func() { _ = c.Delete(context.Background(), ns) })
		await(t).Eventually(func() error { // Pods need it
			return c.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"}, &corev1.ServiceAccount{})
		}).Should(Succeed())
		var objects []*unstructured.Unstructured
		for i := range each {
			objects = append(objects, workload(ns.Name, n+namespaces*i)...)
		}
		var others []map[string]any
		must(t, yaml.Unmarshal([]byte(otherObjects), &others))
		for _, o := range others {
			u := &unstructured.Unstructured{Object: o}
			u.SetNamespace(ns.Name)
			objects = append(objects, u)
		}
		for _, u := range objects {
			must(t, c.Create(t.Context(), u))
		}
	}
}

// dryRunCounts returns the summary that each policy should have, from dry runs of every object of
// the cluster.
func (c *cluster) dryRunCounts(t *testing.T, policies map[string]*v1alpha1.WebhookPolicy) map[string]string {
	t.Helper()
	asker := c.impersonating(t, auditOracle, "administrator", "system:masters")
	since := c.audit.mark(t)
	for _, o := range c.listEverything(t) {
		// An API server calls webhooks before it finds that a name is taken or an object has changed.
		_ = asker.Update(t.Context(), o.DeepCopy(), client.DryRunAll)
		if o.GetKind() == "Deployment" { // the audit evaluates templates as if they changed
			changed := o.DeepCopy()
			must(t, unstructured.SetNestedField(changed.Object, "yes", "spec", "template", "metadata", "annotations", "changed"))
			must(t, asker.Patch(t.Context(), changed, client.MergeFrom(o), client.DryRunAll))
		}
		copied := o.DeepCopy()
		copied.SetResourceVersion("")
		withoutAllocations(copied)
		_ = asker.Create(t.Context(), copied, client.DryRunAll)
	}
	c.audit.mark(t)
	events, _ := c.audit.read(t, since)
	found := map[string]*[2]int{} // by policy: objects that fail as they are, and only anew
	for name := range policies {
		found[name] = &[2]int{}
	}
	for object, byVerb := range findingsByObject(t, events) {
		for name, p := range policies {
			verb := "update"
			if p.Spec.TemplateSpec() != nil && strings.HasPrefix(object, "deployments ") {
				verb = "patch"
			}
			switch {
			case slices.Contains(byVerb[verb], name):
				found[name][0]++
			case slices.Contains(byVerb["create"], name):
				found[name][1]++
			}
		}
	}
	out := map[string]string{}
	for name, n := range found {
		out[name] = strconv.Itoa(n[0])
		if n[1] > 0 {
			out[name] += fmt.Sprintf(" + %d on create", n[1])
		}
	}
	return out
}

// withoutAllocations removes what the API server has allocated to a Service: it refuses a second one with the same before it
// calls webhooks.
func withoutAllocations(o *unstructured.Unstructured) {
	if o.GetKind() != "Service" {
		return
	}
	for _, field := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		unstructured.RemoveNestedField(o.Object, "spec", field)
	}
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	for _, port := range ports {
		if port, ok := port.(map[string]any); ok {
			delete(port, "nodePort")
		}
	}
	if len(ports) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, ports, "spec", "ports")
	}
}

// listEverything returns the objects of all kinds that users create and update. The audit does not
// read Secrets, policies change while they are reported on, and no policy of the library is about
// Events, of which other tests leave thousands.
func (c *cluster) listEverything(t *testing.T) (out []*unstructured.Unstructured) {
	t.Helper()
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(c.config).ServerPreferredResources()
	must(t, err)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		must(t, err)
		for _, r := range list.APIResources {
			isWritten := slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "update") && slices.Contains(r.Verbs, "list")
			isLeftOut := r.Name == "secrets" || r.Name == "events" || gv.Group == v1alpha1.GroupName
			if !isWritten || isLeftOut {
				continue
			}
			found := &unstructured.UnstructuredList{}
			found.SetGroupVersionKind(gv.WithKind(r.Kind + "List"))
			must(t, c.List(t.Context(), found))
			for i := range found.Items {
				out = append(out, &found.Items[i])
			}
		}
	}
	return out
}

// findingsByObject returns the policies that the requests of the dry runs violate, by object and
// verb.
func findingsByObject(t *testing.T, events []auditEvent) map[string]map[string][]string {
	t.Helper()
	out := map[string]map[string][]string{}
	for _, e := range events {
		if e.UserAgent != auditOracle {
			continue
		}
		ref := e.ObjectRef
		if ref.Resource == "namespaces" { // an update is in the namespace itself, a creation in none
			ref.Namespace = ""
		}
		object := fmt.Sprintf("%s %s %s/%s", ref.Resource, ref.APIGroup, ref.Namespace, ref.Name)
		for _, f := range failures(t, e.Annotations) {
			if out[object] == nil {
				out[object] = map[string][]string{}
			}
			out[object][e.Verb] = append(out[object][e.Verb], f.Policy)
		}
	}
	return out
}

// auditSummaries returns the numbers of policies. Those without one have one of the reasons of
// docs/operations/audit.md, and get the wanted text.
func (c *cluster) auditSummaries(ctx context.Context, want map[string]string) (map[string]string, error) {
	unaudited := regexp.MustCompile(`reads (authorizer|request\.userInfo)|compares oldObject|match only (DELETE|CONNECT)|subresource`)
	var list v1alpha1.WebhookPolicyList
	if err := c.List(ctx, &list); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		s := p.Status.Audit
		if want[p.Name] == "" || s == nil {
			continue
		}
		missing := strings.Join(s.Missing, "; ")
		switch {
		case s.Violations != nil:
			out[p.Name] = s.Summary
		case s.Summary == v1alpha1.AuditNotAudited && unaudited.MatchString(missing):
			out[p.Name] = want[p.Name]
		case len(s.Missing) == 1 && strings.Contains(missing, "Ostiary may not list secrets"):
			out[p.Name] = strings.Replace(strings.TrimPrefix(s.Summary, v1alpha1.AuditAtLeast), v1alpha1.AuditNoAccess, "0", 1)
		default:
			out[p.Name] = s.Summary + ": " + missing
		}
	}
	return out, nil
}
