package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	auditPlaces = 4
	// auditDenies and auditWarns are the policies on the objects in these places.
	auditDenies, auditWarns = "chaos-audit-denies", "chaos-audit-warns"
	auditHalf               = "chaos-audit-half"
	// lookup is longer than Ostiary takes to find the kinds of reports again, or pauses
	// after errors.
	lookup = 8 * time.Minute
)

func auditPlace(i int) string { return fmt.Sprintf("chaos-audit-%d", i%auditPlaces) }

// audited are stored objects, and the policies that are evaluated on them.
type audited struct {
	*run
	objects int
}

// storeAudited creates the objects.
func (r *run) storeAudited() *audited {
	r.limits.quiet = true // the objects take the API servers' time
	a := &audited{run: r, objects: r.size.of(4000, 10_000)}
	for i := range auditPlaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: auditPlace(i)}}
		must(r.T, client.IgnoreAlreadyExists(r.admin().Create(r.Context(), ns)))
	}
	errs := make([]error, a.objects)
	workqueue.ParallelizeUntil(r.Context(), 8, a.objects, func(i int) {
		errs[i] = client.IgnoreAlreadyExists(r.admin().Create(r.Context(), auditedObject(i)))
	})
	must(r.T, errors.Join(errs...))
	return a
}

// auditedObject returns an object that is bad, odd or good.
func auditedObject(i int) *corev1.ConfigMap {
	verdict := "good"
	switch n := i / auditPlaces; {
	case n%5 == 0:
		verdict = "bad"
	case n%10 == 1:
		verdict = "odd"
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: auditPlace(i),
			Name:      fmt.Sprintf("audited-%05d", i),
			Labels:    map[string]string{auditHalf: fmt.Sprint(i / auditPlaces % 2)},
		},
		Data: map[string]string{"verdict": verdict},
	}
}

func auditedPolicy(name, expression string, action admissionregistrationv1.ValidationAction) *v1alpha1.WebhookPolicy {
	p := policy(0)
	p.Name = name
	p.Spec.Mutations = nil
	p.Spec.FailurePolicy = new(admissionregistrationv1.Fail) // as the configurations of all scenarios
	p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn,
		Values: []string{auditPlace(0), auditPlace(1), auditPlace(2), auditPlace(3)},
	}}}
	p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
	p.Spec.Validations = []v1alpha1.Validation{{Expression: expression, Message: "see data.verdict"}}
	p.Spec.Bindings = []v1alpha1.Binding{{Name: "all", ValidationActions: []admissionregistrationv1.ValidationAction{action}}}
	return p
}

func isNot(verdict string) string { return fmt.Sprintf("object.data.verdict != %q", verdict) }

// apply creates the policies.
func (a *audited) apply() {
	must(a.T, a.admin().Create(a.Context(), auditedPolicy(auditDenies, isNot("bad"), admissionregistrationv1.Deny)))
	must(a.T, a.admin().Create(a.Context(), auditedPolicy(auditWarns, isNot("odd"), admissionregistrationv1.Warn)))
}

// remove deletes the policies and the objects.
func (a *audited) remove() {
	for _, name := range []string{auditDenies, auditWarns} {
		must(a.T, client.IgnoreNotFound(a.admin().Delete(a.Context(), &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})))
	}
	a.removeObjects("0")
	a.removeObjects("1")
	await(a.T, "no configurations of the audited policies", func() error {
		configs, err := a.configs(a.Context())
		if err == nil && len(configs) > configurations {
			err = fmt.Errorf("there are %d", len(configs))
		}
		return err
	})
}

// removeObjects deletes one half of the objects.
func (a *audited) removeObjects(half string) {
	for i := range auditPlaces {
		must(a.T, a.admin().DeleteAllOf(a.Context(), &corev1.ConfigMap{}, client.InNamespace(auditPlace(i)),
			client.MatchingLabels{auditHalf: half}))
	}
}

// summary returns what the summary of the report of a place has to be.
func (a *audited) summary(place string) (string, error) {
	var list corev1.ConfigMapList
	if err := a.admin().List(a.Context(), &list, client.InNamespace(place)); err != nil {
		return "", err
	}
	n := map[string]int{}
	for i := range list.Items {
		n[list.Items[i].Data["verdict"]]++
	}
	fail, warn := n["bad"], n["odd"]
	return fmt.Sprintf(`{"error":0,"fail":%d,"pass":%d,"skip":0,"warn":%d}`, fail, 2*len(list.Items)-fail-warn, warn), nil
}

// reports returns the reports about stored objects.
func (a *audited) reports() (map[string]string, error) {
	out := map[string]string{}
	err := a.eachReport(func(o *unstructured.Unstructured) error {
		if o.Object["source"] != "ostiary" {
			return nil // about requests
		}
		text, err := json.Marshal([]any{o.Object["summary"], o.Object["results"], o.GetAnnotations()})
		out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
		return err
	})
	return out, err
}

func (a *audited) eachReport(do func(*unstructured.Unstructured) error) error {
	for _, kind := range []string{"Report", "ClusterReport"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: kind + "List"})
		if err := a.admin().List(a.Context(), list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := do(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitSummaries waits until the reports have the numbers of the stored objects.
func (a *audited) awaitSummaries() time.Duration {
	want := map[string]string{}
	for i := range auditPlaces {
		summary, err := a.summary(auditPlace(i))
		must(a.T, err)
		want[auditPlace(i)] = summary
	}
	return awaitFor(a.T, lookup, "the reports to have the numbers of the stored objects", func() error {
		reports, err := a.reports()
		if err != nil {
			return err
		}
		for place, summary := range want {
			if got := reports["Report "+place+"/ostiary"]; !strings.HasPrefix(got, "["+summary+",") {
				pause(a.T, time.Second) // lists of reports take time of the API servers
				return fmt.Errorf("the report of %s is %.100s, want the summary %s", place, got, summary)
			}
		}
		return nil
	})
}

// awaitFresh requires that the reports equal those of a leader that has seen nothing of what
// went before: it finds no report and evaluates everything again.
func (a *audited) awaitFresh() {
	pause(a.T, 25*time.Second) // lines that have become free are filled by another scan
	before, err := a.reports()
	must(a.T, err)
	leader := a.leader(a.T)
	a.kill(leader)
	must(a.T, a.eachReport(func(o *unstructured.Unstructured) error {
		return client.IgnoreNotFound(a.admin().Delete(a.Context(), o))
	}))
	leader.restart(a.T)
	awaitFor(a.T, lookup, "the reports of a fresh scan", func() error {
		after, err := a.reports()
		if err != nil || maps.Equal(before, after) {
			return err
		}
		for name, text := range before {
			if after[name] != text {
				return fmt.Errorf("%s is\n%.1000s\nbefore:\n%.1000s", name, after[name], text)
			}
		}
		return fmt.Errorf("%d reports, before %d", len(after), len(before))
	})
	a.awaitAll(a.T)
	a.note("%d reports as those of a fresh scan", len(before))
}

// evaluations is the number that a replica has made.
func (m *member) evaluations(r *run) int {
	text, err := m.get(r.Context(), m.metrics, "/metrics")
	must(r.T, err)
	return metric(r, text, "ostiary_audit_evaluations_total")
}

// auditLeaderKilled kills the leader while it scans.
func auditLeaderKilled(r *run) {
	a := r.storeAudited()
	defer a.remove()
	leader := r.leader(r.T)
	before, done := leader.evaluations(r), 0
	a.apply()
	await(r.T, "the scan to begin", func() error {
		if done = leader.evaluations(r) - before; done == 0 {
			return errors.New("no evaluation")
		}
		return nil
	})
	r.kill(leader)
	if done >= 2*a.objects {
		r.problem("the scan had ended before the leader was killed")
	}
	leader.restart(r.T)
	r.note("killed after %d of %d evaluations", done, 2*a.objects)
	a.awaitSummaries()
	a.awaitFresh()
}

// auditAPIServersDown stops the API servers right after half of the objects are deleted.
func auditAPIServersDown(r *run) {
	a := r.storeAudited()
	defer a.remove()
	a.apply()
	a.awaitSummaries()
	r.outage(func() {
		a.removeObjects("1") // the watch and the scan that follows end early
		for i := range apiServers {
			r.stop(i)
		}
		pause(r.T, time.Duration(r.size.of(15, 60))*time.Second)
	}, func() {
		for i := range apiServers {
			r.startAgain(i)
		}
	})
	a.awaitSummaries()
	a.awaitFresh()
}

// auditEtcdFull fills etcd, in which deletions are then the only writes.
func auditEtcdFull(r *run) {
	r.limits.unserved = true
	a := r.storeAudited()
	defer a.remove()
	a.apply()
	a.awaitSummaries()
	pids := r.pids()
	r.disturbed.Store(true) // etcd is busy, and then stands still to be defragmented
	r.fill()
	r.frozen.Store(true)
	a.removeObjects("1")
	pause(r.T, time.Duration(r.size.of(20, 120))*time.Second)
	r.makeRoom()
	r.frozen.Store(false)
	r.disturbed.Store(false)
	r.awaitAll(r.T)
	if fmt.Sprint(pids) != fmt.Sprint(r.pids()) {
		r.problem("a replica has ended")
	}
	r.note("reports %s after there was room", a.awaitSummaries().Round(time.Second))
	a.awaitFresh()
}

// auditObjectsDeleted deletes half of the objects.
func auditObjectsDeleted(r *run) {
	a := r.storeAudited()
	defer a.remove()
	a.apply()
	a.awaitSummaries()
	a.removeObjects("0")
	took := a.awaitSummaries()
	r.within("the removal of results of deleted objects", took, time.Minute)
	r.note("removed after %s", took.Round(time.Second))
	a.awaitFresh()
}

// auditReportsRemoved removes the kinds of reports and installs them again.
func auditReportsRemoved(r *run) {
	a := r.storeAudited()
	defer a.remove()
	a.apply()
	a.awaitSummaries()
	pids := r.pids()
	must(r.T, r.kubectl(r.Context(), "delete", "crd", "reports.openreports.io", "clusterreports.openreports.io", "--timeout=60s"))
	a.removeObjects("1")
	pause(r.T, time.Duration(r.size.of(20, 120))*time.Second)
	must(r.T, r.kubectl(r.Context(), "apply", "-f", reportKinds, "-f", clusterReportKinds))
	r.note("reports %s after their kinds exist", a.awaitSummaries().Round(time.Second))
	if fmt.Sprint(pids) != fmt.Sprint(r.pids()) {
		r.problem("a replica has ended")
	}
	a.awaitFresh()
}
