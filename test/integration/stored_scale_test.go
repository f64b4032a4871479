package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	openreportsv1alpha1 "github.com/openreports/reports-api/apis/openreports.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/cli"
	"github.com/ostiary/ostiary/internal/cli/output"
)

const (
	// scaleVariable enables the measurement, with the number of objects.
	scaleVariable   = "OSTIARY_AUDIT_OBJECTS"
	scaleNamespaces = 200
	scalePolicies   = 60 // half of them on ConfigMaps, half on Pods
	scaleNumbers    = 100
	scaleRate       = 50 // admission requests in each second
	scaleDeadline   = 20 * time.Minute

	// Budgets. The token bucket limits decoding and evaluation to 0.03 of a core; garbage
	// collection, the transport and reports are not part of it.
	scaleShare     = 0.2
	scaleMemory    = 100 // MiB
	scaleRatio     = 1.3
	scaleApply     = 2500 * time.Millisecond
	scaleBaseline  = 3 * time.Minute
	scaleBurst     = 10 // list requests
	scalePerSecond = 5
)

func scaleNamespace(i int) string { return fmt.Sprintf("audit-scale-%03d", i%scaleNamespaces) }

// The audit of many objects stays within its budgets, and finds what kubectl ostiary eval finds in a dump. It takes about
// 25 minutes: OSTIARY_AUDIT_OBJECTS=60000 go test ./test/integration -run TestAuditOfManyObjects -v -timeout 90m
func TestAuditOfManyObjects(t *testing.T) {
	total, err := strconv.Atoi(os.Getenv(scaleVariable))
	if err != nil {
		t.Skip(scaleVariable + " has the number of objects, such as 60000")
	}
	c := install(t)
	c.audited(t) // installs the kinds of reports
	c.restarted(t, "--audit-interval=0")
	m := c.manager(t)
	fast := c.scaleObjects(t, total)
	policies := scaledPolicies()
	c.enforce(t, policies...)

	// Both measurements list all policies every 5 s, which takes the API server some milliseconds.
	without := c.measure(t, m, fast, func() bool { return c.scannedSince(t, time.Now()) }, scaleBaseline)
	t.Logf("without the audit: %s", without)
	c.restarted(t, "--audit-interval=5m")
	m = c.manager(t)
	began, mark := time.Now(), c.audit.mark(t)
	with := c.measure(t, m, fast, func() bool { return c.scannedSince(t, began) }, scaleDeadline)
	first := m.series(t, "ostiary_audit_evaluations_total")
	lists := c.scanLists(t, mark)
	t.Logf("with the first scan: %s; %.0f evaluations, %d lists", with, first, lists)

	// Each object is evaluated once for each policy on its kind. Namespaces have objects of controllers, too.
	if want := float64(total * scalePolicies / 2); first < want || first > want+2*scaleNamespaces*scalePolicies {
		t.Errorf("%.0f evaluations, want %.0f and few more", first, want)
	}
	if got := with.share() - without.share(); got > scaleShare {
		t.Errorf("the scan takes %.2f of a core, at most %.2f are allowed", got, scaleShare)
	}
	if limit := scaleBurst + int(scalePerSecond*with.took.Seconds()); lists > limit {
		t.Errorf("%d lists, at most %d are allowed", lists, limit)
	}
	if got := with.peak - without.peak; got > scaleMemory {
		t.Errorf("the scan takes %.0f MiB, at most %d are allowed", got, scaleMemory)
	}
	if got := float64(with.p99) / float64(without.p99); got > scaleRatio {
		t.Errorf("the p99 of requests is %.2f times as high, at most %.1f is allowed", got, scaleRatio)
	}

	want := c.offlineFindings(t, policies)
	t.Logf("%d violations", len(want))
	reports, _ := c.reportClient(t)
	scaleAwait(t).Eventually(func() string { return cmp.Diff(want, scaledFindings(t, reports)) }).Should(BeEmpty())

	scaleAwait(t).Eventually(func() bool { return c.scannedSince(t, began.Add(with.took)) }).Should(BeTrue())
	if again := m.series(t, "ostiary_audit_evaluations_total"); again != first {
		t.Errorf("another scan of unchanged objects made %.0f evaluations", again-first)
	}
	c.measureImpact(t, fast, total)
}

func scaleAwait(t *testing.T) Gomega {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(scaleDeadline)
	g.SetDefaultEventuallyPollingInterval(time.Second)
	return g
}

// scaleObjects creates the objects, five ConfigMaps for each Pod, and returns the client.
func (c *cluster) scaleObjects(t *testing.T, total int) client.Client {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	fast, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must(t, err)
	for i := range scaleNamespaces {
		must(t, fast.Create(t.Context(), &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: scaleNamespace(i), Labels: map[string]string{"audit": "scale"}},
		}))
	}
	scaleAwait(t).Eventually(func() error { // the account of Pods takes a moment
		for i := range scaleNamespaces {
			if err := fast.Get(t.Context(), client.ObjectKey{Namespace: scaleNamespace(i), Name: "default"}, &corev1.ServiceAccount{}); err != nil {
				return err
			}
		}
		return nil
	}).Should(Succeed())
	pods := total / 6
	createAll(t, fast, pods, scaledPod)
	createAll(t, fast, total-pods, scaledConfigMap)
	return fast
}

func createAll(t *testing.T, c client.Client, n int, object func(i int) client.Object) {
	t.Helper()
	var creating errgroup.Group
	creating.SetLimit(16)
	for i := range n {
		creating.Go(func() error { return c.Create(t.Context(), object(i)) })
	}
	must(t, creating.Wait())
}

func scaledMeta(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: scaleNamespace(i),
		Name:      fmt.Sprintf("scaled-%06d", i),
		Labels:    map[string]string{"number": strconv.Itoa(i / scaleNamespaces % scaleNumbers)},
	}
}

func scaledConfigMap(i int) client.Object {
	return &corev1.ConfigMap{ObjectMeta: scaledMeta(i), Data: map[string]string{"text": strings.Repeat("some text. ", 50)}}
}

func scaledPod(i int) client.Object {
	p := newPod("")
	p.ObjectMeta = scaledMeta(i)
	return p
}

// scaledPolicies are policies of which each denies one number.
func scaledPolicies() (out []*v1alpha1.WebhookPolicy) {
	for i := range scalePolicies {
		p := newPolicy(fmt.Sprintf("scaled-%02d", i), "",
			saying(fmt.Sprintf(`!has(object.metadata.labels) || !("number" in object.metadata.labels) || `+
				`object.metadata.labels.number != "%d"`, i/2)))
		p.Spec.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"audit": "scale"}}
		p.Spec.MatchConstraints.ResourceRules[0].Resources = []string{[]string{"configmaps", "pods"}[i%2]}
		out = append(out, p)
	}
	return out
}

// measured is what a manager takes while it answers requests.
type measured struct {
	took, cpu, p99 time.Duration
	peak           float64 // MiB since its start
	requests       int
}

func (m measured) share() float64 { return m.cpu.Seconds() / m.took.Seconds() }

func (m measured) String() string {
	return fmt.Sprintf("%s, %.3f of a core, peak %.0f MiB, p99 %s of %d requests", m.took.Round(time.Second), m.share(),
		m.peak, m.p99.Round(100*time.Microsecond), m.requests)
}

// measure sends requests that policies allow until done, or for a time.
func (c *cluster) measure(t *testing.T, m *process, fast client.Client, done func() bool, limit time.Duration) (out measured) {
	t.Helper()
	c.awaitAllowed(t, scaleNamespace(0))
	send := func() time.Duration {
		o := scaledConfigMap(rand.IntN(scaleNamespaces))
		o.SetName("probe")
		o.SetLabels(map[string]string{"number": "none"})
		began := time.Now()
		if err := fast.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("a request that policies allow: %v", err)
		}
		return time.Since(began)
	}
	for range 5 * scaleRate {
		send() // what is compiled and connected at first
	}
	var mu sync.Mutex
	var took []time.Duration
	var sending sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	sending.Go(func() {
		tick := time.NewTicker(time.Second / scaleRate)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				sending.Go(func() {
					d := send()
					mu.Lock()
					defer mu.Unlock()
					took = append(took, d)
				})
			}
		}
	})
	before, began := m.processor(t), time.Now()
	for time.Since(began) < limit && !done() {
		time.Sleep(5 * time.Second)
	}
	out.took, out.cpu = time.Since(began), m.processor(t)-before
	stop()
	sending.Wait()
	slices.Sort(took)
	out.requests, out.p99, out.peak = len(took), took[len(took)*99/100], m.peakMemory(t)
	return out
}

// processor returns the time that the process has used, from /proc.
func (m *process) processor(t *testing.T) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.cmd.Process.Pid))
	must(t, err)
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		must(t, err)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// peakMemory returns the largest resident memory so far, in MiB.
func (m *process) peakMemory(t *testing.T) float64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid))
	must(t, err)
	_, line, _ := strings.Cut(string(raw), "VmHWM:")
	kib, err := strconv.ParseFloat(strings.Fields(line)[0], 64)
	must(t, err)
	return kib / 1024
}

// scannedSince reports whether every policy has been evaluated on all objects since a time.
func (c *cluster) scannedSince(t *testing.T, since time.Time) bool {
	t.Helper()
	var list v1alpha1.WebhookPolicyList
	must(t, c.List(t.Context(), &list))
	return !slices.ContainsFunc(list.Items, func(p v1alpha1.WebhookPolicy) bool {
		return strings.HasPrefix(p.Name, "scaled-") && (p.Status.Audit == nil || p.Status.Audit.Time == nil || !p.Status.Audit.Time.After(since))
	})
}

// scanLists is the number of lists of ConfigMaps and Pods by the manager since a mark.
func (c *cluster) scanLists(t *testing.T, since int64) (n int) {
	t.Helper()
	events, _ := c.audit.read(t, since)
	for _, e := range events {
		if e.byManager() && e.Verb == "list" && strings.Contains(e.URI, "limit=100") {
			n++
		}
	}
	return n
}

// offlineFindings evaluates the policies on a dump of the objects with kubectl ostiary eval.
func (c *cluster) offlineFindings(t *testing.T, policies []*v1alpha1.WebhookPolicy) (out []string) {
	t.Helper()
	folder := t.TempDir()
	write := func(name string, list any) {
		raw, err := json.Marshal(list)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(folder, name+".json"), raw, 0o600))
	}
	for _, p := range policies {
		p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WebhookPolicy"))
		write(p.Name, p)
	}
	for _, kind := range []string{"Namespace", "ConfigMap", "Pod"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind + "List"})
		for n := 0; ; n++ {
			must(t, c.List(t.Context(), list, client.Limit(5000), client.Continue(list.GetContinue())))
			write(fmt.Sprintf("%s-%d", kind, n), list)
			if list.GetContinue() == "" {
				break
			}
		}
	}
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	if status := cli.Run(t.Context(), "kubectl ostiary", []string{"eval", "-f", folder, "-o", "json"},
		streams); status != output.StatusFindings {
		t.Fatalf("kubectl ostiary eval: status %d: %s", status, stderr)
	}
	var evaluations []struct {
		Object    string
		Decisions []struct{ Policy, Decision string }
	}
	must(t, json.Unmarshal(stdout.Bytes(), &evaluations))
	for _, e := range evaluations {
		for _, d := range e.Decisions {
			if d.Decision == "deny" {
				out = append(out, d.Policy+" "+e.Object)
			}
		}
	}
	slices.Sort(out)
	return out
}

// scaledFindings returns the same from all reports about stored objects.
func scaledFindings(t *testing.T, c client.Client) (out []string) {
	t.Helper()
	var list openreportsv1alpha1.ReportList
	must(t, c.List(t.Context(), &list))
	for _, r := range list.Items {
		if r.Source == requestSource {
			continue
		}
		for _, result := range r.Results {
			if strings.HasPrefix(result.Policy, "scaled-") && result.Result == "fail" {
				o := result.Subjects[0]
				out = append(out, fmt.Sprintf("%s %s %s/%s", result.Policy, o.Kind, o.Namespace, o.Name))
			}
		}
	}
	slices.Sort(out)
	return out
}

// measureImpact compares the time to apply a policy that denies with that of one that warns,
// which is not evaluated on stored objects.
func (c *cluster) measureImpact(t *testing.T, fast client.Client, total int) {
	t.Helper()
	createAll(t, fast, total*2/3, func(i int) client.Object {
		o := scaledConfigMap(i)
		o.SetName(fmt.Sprintf("more-%06d", i))
		o.SetLabels(map[string]string{"number": "none"}) // the policies allow it
		return o
	})
	c.reviewing(t, true)
	a := c.asker(t)
	apply := func(action admissionregistrationv1.ValidationAction) (time.Duration, []string) {
		var took []time.Duration
		var warnings []string
		for range 5 {
			p := scaledPolicies()[0]
			p.Name = "scaled-impact"
			p.Spec.Validations[0].Expression = "object.metadata.name != ''" // no object decides early
			p.Spec.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
			acting(action)(p)
			began := time.Now()
			warnings = a.warningsOf(t, p, client.DryRunAll)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		return took[len(took)-1], warnings
	}
	plain, _ := apply(admissionregistrationv1.Warn)
	evaluated, warnings := apply(admissionregistrationv1.Deny)
	t.Logf("a policy applied with %d objects: %s, %s with the impact, the longest of 5; %q", total*5/3,
		plain.Round(time.Millisecond), evaluated.Round(time.Millisecond), warnings)
	if len(warnings) != 1 || !strings.Contains(warnings[0], "not all existing objects were evaluated (ConfigMaps)") {
		t.Errorf("warnings %q, want one about the limit", warnings)
	}
	if evaluated-plain > scaleApply {
		t.Errorf("the apply takes %s longer, at most %s are allowed", evaluated-plain, scaleApply)
	}
}
