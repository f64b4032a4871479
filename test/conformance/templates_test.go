package conformance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// documented finds expressions about what docs/policies/pod-templates.md says is not equal
// for a workload: the request, and the name of a Pod.
var documented = regexp.MustCompile(`request|metadata\.name|\?name|generateName|m\.name|metadata ==|metadata\)`)

// workload is a kind with a template, in YAML that %s completes.
type workload struct {
	resource, path, object string
	restartPolicy          string
}

func workloads() []workload {
	return []workload{
		{
			resource:      "deployments",
			path:          "spec.template",
			restartPolicy: "Always",
			object: `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"made"},` +
				`"spec":{"selector":{"matchLabels":{"of":"template"}},"template":%s}}`,
		},
		{
			resource:      "daemonsets",
			path:          "spec.template",
			restartPolicy: "Always",
			object: `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"made"},` +
				`"spec":{"selector":{"matchLabels":{"of":"template"}},"template":%s}}`,
		},
		{
			resource:      "cronjobs",
			path:          "spec.jobTemplate.spec.template",
			restartPolicy: "Never",
			object: `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"made"},"spec":{"schedule":"@daily",` +
				`"jobTemplate":{"spec":{"template":%s}}}}`,
		},
	}
}

// templatesOf are templates; every Pod has a name from the server.
func templatesOf(w workload) []string {
	spec := func(rest string) string { return `{"restartPolicy":"` + w.restartPolicy + `",` + rest + `}` }
	return []string{
		`{"metadata":{"labels":{"of":"template","team":"shop"}},"spec":` +
			spec(`"containers":[{"name":"app","image":"registry.test/app:1","resources":{"limits":{"cpu":"2"}}}]`) + `}`,
		`{"metadata":{"labels":{"of":"template"},"annotations":{"a":"b"}},"spec":` +
			spec(`"hostNetwork":true,"containers":[{"name":"app","image":"elsewhere.test/app"},{"name":"side",`+
				`"image":"registry.test/side"}],"terminationGracePeriodSeconds":3`) + `}`,
		`{"metadata":{"labels":{"of":"template","team":"search"}},"spec":` +
			spec(`"containers":[{"name":"app","image":"registry.test/app:1","env":[{"name":"A","value":"1"}]}]`) + `}`,
	}
}

// requests returns the requests for a Pod and for the workload of a template.
func (w workload) requests(template string) (pod, of Request, err error) {
	var parts struct {
		Metadata map[string]any  `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal([]byte(template), &parts); err != nil {
		return pod, of, err
	}
	parts.Metadata["generateName"] = "made-"
	metadata, err := json.Marshal(parts.Metadata)
	if err != nil {
		return pod, of, err
	}
	group := "apps/v1"
	if w.resource == "cronjobs" {
		group = "batch/v1"
	}
	return post("/api/v1/namespaces/{ns}/pods", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":%s,"spec":%s}`, metadata, parts.Spec)),
		post("/apis/"+group+"/namespaces/{ns}/"+w.resource, fmt.Sprintf(w.object, template)), nil
}

// templateCase returns the next generated policy for Pods that is about no documented
// difference, and not about tolerations, which API servers add to Pods.
func (a author) templateCase(name, tier string) Case {
	for {
		s := a.spec(pods())
		s.PodTemplates, s.Order = onTemplates(&s), nil
		text, err := json.Marshal(s)
		if err != nil || documented.Match(text) || strings.Contains(string(text), "tolerations") || s.PodTemplates == nil {
			continue
		}
		return Case{Name: name, Tier: tier, Policies: []v1alpha1.WebhookPolicySpec{s}}
	}
}

// asPod removes from the answer about a workload what names it: the webhook, the path of
// the template, and the object.
func (w workload) asPod(a *Answer) *Answer {
	out := *a
	out.About, out.Object = "", w.podIn(a.Object)
	if a.Code == http.StatusUnprocessableEntity && !strings.Contains(a.Message, "denied the request") {
		return &Answer{Code: a.Code} // the API server names the fields of what a mutation made invalid
	}
	out.texts(func(text string) string {
		text = regexp.MustCompile(`(templates|policies|mutations)-t?[0-9a-f]+`).ReplaceAllString(text, "webhook")
		text = strings.ReplaceAll(text, "\n"+w.path+": ", "\n") // of a second mutation
		return strings.ReplaceAll(strings.Replace(text, w.path+" WebhookPolicy", "object WebhookPolicy", 1), ": "+w.path+": ", ": ")
	})
	for i, warning := range out.Warnings { // those of Ostiary end with the Pod or the workload
		if strings.Contains(warning, "WebhookPolicy '") {
			out.Warnings[i] = withoutObject(warning)
		}
	}
	slices.Sort(out.Causes)
	annotations := map[string]string{}
	for key, value := range a.Annotations {
		if strings.Contains(key, "ostiary") {
			_, key, _ = strings.Cut(key, "/")
			value = strings.ReplaceAll(strings.ReplaceAll(value, w.path+": ", ""), `,"template":"`+w.path+`"`, "")
			annotations[key] = value
		}
	}
	out.Annotations = annotations
	if value, found := annotations[ourFailures]; found {
		out.Failures = failures(value)
	}
	return &out
}

// podIn returns what policies can change of a Pod, or of the template of a workload: its
// labels, annotations and spec, without what API servers add to Pods alone.
func (w workload) podIn(object any) any {
	tree, _ := object.(map[string]any)
	if tree == nil {
		return nil
	}
	if tree["kind"] != "Pod" {
		for _, field := range strings.Split(w.path, ".") {
			tree, _ = tree[field].(map[string]any)
		}
	}
	metadata, _ := tree["metadata"].(map[string]any)
	spec, _ := tree["spec"].(map[string]any)
	for _, field := range []string{
		"serviceAccount", "serviceAccountName", "priority", "preemptionPolicy", "enableServiceLinks", "tolerations",
	} {
		delete(spec, field)
	}
	isToken := func(v any) bool {
		member, _ := v.(map[string]any)
		return strings.Contains(fmt.Sprint(member["name"]), "kube-api-access")
	}
	drop(spec, "volumes", isToken)
	containers, _ := spec["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		drop(container, "volumeMounts", isToken)
		resources, _ := container["resources"].(map[string]any)
		delete(resources, "requests")
	}
	return map[string]any{"labels": metadata["labels"], "annotations": metadata["annotations"], "spec": spec}
}

// drop removes elements of a list, and the list if it becomes empty.
func drop(from map[string]any, field string, unwanted func(any) bool) {
	list, ok := from[field].([]any)
	if list = slices.DeleteFunc(list, unwanted); !ok {
		return
	}
	if from[field] = list; len(list) == 0 {
		delete(from, field)
	}
}

// TestTemplatesDecideAsPods sends Pods, and workloads that produce them, for policies made
// at random: a Pod and its workload get the same answer, and mutations change both alike.
func TestTemplatesDecideAsPods(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	ours := suite.engines[1]
	a := author{rand.New(rand.NewPCG(*seed, 1<<32))}
	outcomes := map[string]int{}
	for compared := 0; compared < *number; {
		var policies []*v1alpha1.WebhookPolicy
		var batch []*placed
		for i, s := range suite.slots {
			p, err := place(a.templateCase(fmt.Sprintf("templates %d, seed %d", i, *seed), s.tier), suite.cases, s)
			if err != nil {
				t.Fatal(err)
			}
			suite.cases++
			batch, policies = append(batch, p), append(policies, p.policies...)
		}
		suite.batches++
		done, err := ours.install(t.Context(), suite.batches, policies)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range batch {
			if done.refused[p.policies[0].Name] == "" {
				compared += comparePodsAndWorkloads(t, ours, p, outcomes)
			}
		}
		if err := ours.deleteAll(t.Context(), done.objects); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("answers %v", outcomes)
	for _, outcome := range []string{"allowed", "denied", "failed", "warned", "audited", "mutated"} {
		if *number >= 400 && outcomes[outcome] == 0 {
			t.Errorf("no answer was %s: the generator should make some", outcome)
		}
	}
}

func comparePodsAndWorkloads(t *testing.T, ours *engine, p *placed, outcomes map[string]int) (compared int) {
	t.Helper()
	for _, w := range workloads() {
		for _, template := range templatesOf(w) {
			pod, of, err := w.requests(template)
			if err != nil {
				t.Fatal(err)
			}
			want, got := w.asPod(answerTo(t, ours, p, pod)), w.asPod(answerTo(t, ours, p, of))
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: the answer about the Pod and about %s of its template (-pod +workload):\n%s\n%s\n%+v", p.Name,
					w.resource, diff, template, p.policies[0].Spec)
			}
			if outcomes[outcomeOf(want)]++; want.Object != nil && len(p.policies[0].Spec.Mutations) > 0 {
				outcomes["mutated"]++
			}
			compared++
		}
	}
	return compared
}

func answerTo(t *testing.T, ours *engine, p *placed, r Request) *Answer {
	t.Helper()
	r.Path, r.Body = string(p.slot.expand([]byte(r.Path))), p.slot.expand(r.Body)
	reply, err := ours.send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.audit.wait(t.Context(), []string{reply.auditID}); err != nil {
		t.Fatal(err)
	}
	answer, err := answerOf(r, reply, ours.audit.take(reply.auditID))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
