package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/test/bench"
)

const (
	// scaleGroups is how many call groups many policies make.
	scaleGroups = 120
	// scaleChanges are changed one after the other, so that the slowest but one
	// of them is the 99th percentile.
	scaleChanges = 100
	// scaleRest is how long nothing is changed.
	scaleRest = 30 * time.Second
	// scaleCalm is how long it takes after the last change for it to be announced
	// once more.
	scaleCalm = 5 * time.Second
	// scaleWait bounds each wait with many policies.
	scaleWait = 15 * time.Minute
)

// scale is what many policies cost.
type scale struct {
	policies, groups int
	clients          int           // distinct client configurations, which API servers keep a client for
	applied, enforce time.Duration // from the first apply until the last was answered, and until all were Ready
	checked          time.Duration // likewise, until all types were checked
	cpu              time.Duration // that the manager spent on it
	atRest, applying memory
	restarted        time.Duration // from the start of another manager until it was ready
	cold             memory
	restartCPU       time.Duration
	writes           int             // while nothing changed, after all was checked and after the restart
	changes          []time.Duration // sorted
	changeCPU        time.Duration   // of the manager, for each change
}

func (s *scale) p99() time.Duration { return s.changes[len(s.changes)*99/100-1] }

// measureScale applies so many policies, starts the manager again, and
// changes some of them. They stay: to delete them takes minutes, and nothing is
// measured after them.
func (w *world) measureScale(ctx context.Context, count int) (*scale, error) {
	w.log.Printf("Scale: applying %d policies", count)
	w.timeout = scaleWait
	defer func() { w.timeout = waitTimeout }()
	s := &scale{policies: count}
	if err := w.prepareScale(ctx); err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context, *scale) error{
		w.applyMany, w.countClients, w.restAfter, w.restartMany, w.restAfter, w.changeSome,
	} {
		if err := part(ctx, s); err != nil {
			return nil, fmt.Errorf("with %d policies: %w", count, err)
		}
	}
	return s, nil
}

func scaleNamespace(group int) string { return fmt.Sprintf("scale-%d", group) }

func (w *world) prepareScale(ctx context.Context) error {
	var namespaces []client.Object
	for group := range scaleGroups {
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: scaleNamespace(group)}})
	}
	if err := w.create(ctx, namespaces); err != nil {
		return err
	}
	return w.startManager(ctx)
}

func (w *world) applyMany(ctx context.Context, s *scale) error {
	start := time.Now()
	policies := bench.Many(s.policies, scaleGroups, scaleNamespace)
	if err := w.apply(ctx, policies); err != nil {
		return err
	}
	s.applied = time.Since(start)
	if err := w.awaitReady(ctx, len(policies)); err != nil {
		return err
	}
	s.enforce = time.Since(start)
	w.log.Printf("Scale: %d policies applied after %s, Ready after %s", s.policies, seconds(s.applied), seconds(s.enforce))
	if err := w.awaitChecked(ctx); err != nil {
		return err
	}
	s.checked = time.Since(start)
	var errCPU, errMemory error
	s.cpu, errCPU = cpuTime(w.manager.PID())
	s.applying, errMemory = memoryOf(w.manager.PID())
	w.log.Printf("Scale: types checked after %s, %s s of CPU", seconds(s.checked), seconds(s.cpu))
	return errors.Join(errCPU, errMemory, w.awaitAudited(ctx))
}

// awaitAudited waits until the statuses of all policies have a result of the audit: Ostiary
// writes them over ten minutes.
func (w *world) awaitAudited(ctx context.Context) error {
	return w.await(ctx, time.Second, "all policies are audited", func() (bool, error) {
		var list v1alpha1.WebhookPolicyList
		err := w.client.List(ctx, &list)
		return !slices.ContainsFunc(list.Items, func(p v1alpha1.WebhookPolicy) bool { return p.Status.Audit == nil }), err
	})
}

// countClients counts what API servers keep a client for: they tell webhooks
// apart by where they are and by their bundle.
func (w *world) countClients(ctx context.Context, s *scale) error {
	configurations, err := w.configurations(ctx)
	if err != nil {
		return fmt.Errorf("reading the configurations: %w", err)
	}
	s.groups = len(configurations)
	distinct := map[string]bool{}
	for i := range configurations {
		for _, hook := range configurations[i].Webhooks {
			distinct[fmt.Sprintf("%s %x", *hook.ClientConfig.URL, sha256.Sum256(hook.ClientConfig.CABundle))] = true
		}
	}
	s.clients = len(distinct)
	return nil
}

// restAfter counts what is written while nothing is changed.
func (w *world) restAfter(ctx context.Context, s *scale) error {
	if err := sleep(ctx, scaleCalm); err != nil {
		return err
	}
	before, err := w.writes(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, scaleRest); err != nil {
		return err
	}
	after, err := w.writes(ctx)
	n, what := more(before, after)
	s.writes += n
	w.log.Printf("Scale: %d writes at rest%s", n, what)
	var errMemory error
	s.atRest, errMemory = memoryOf(w.manager.PID())
	return errors.Join(err, errMemory)
}

// restartMany starts the manager anew. What it writes until it leads counts as
// written at rest.
func (w *world) restartMany(ctx context.Context, s *scale) error {
	before, err := w.writes(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := w.startManager(ctx); err != nil {
		return err
	}
	s.restarted = time.Since(start)
	after, err := w.writes(ctx)
	if err != nil {
		return err
	}
	n, what := more(before, after)
	s.writes += n
	var errMemory error
	s.restartCPU, err = cpuTime(w.manager.PID())
	s.cold, errMemory = memoryOf(w.manager.PID())
	w.log.Printf("Scale: ready %s after a start, %s s of CPU, %d writes%s", seconds(s.restarted), seconds(s.restartCPU), n, what)
	return errors.Join(err, errMemory)
}

// changeSome changes one policy after the other, of all groups in turn, and
// waits until the API server's answer says so.
func (w *world) changeSome(ctx context.Context, s *scale) error {
	spent, err := cpuTime(w.manager.PID())
	if err != nil {
		return err
	}
	for i := range scaleChanges {
		took, err := w.changeOne(ctx, i*(s.policies/scaleChanges), fmt.Sprintf("changed %d", i))
		if err != nil {
			return err
		}
		s.changes = append(s.changes, took)
	}
	slices.Sort(s.changes)
	all, err := cpuTime(w.manager.PID())
	s.changeCPU = (all - spent) / scaleChanges
	w.log.Printf("Scale: a change enforced after %s s at p99, %s s at most", seconds(s.p99()), seconds(s.changes[len(s.changes)-1]))
	return err
}

func (w *world) changeOne(ctx context.Context, number int, message string) (time.Duration, error) {
	policy := &v1alpha1.WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Name: bench.ManyName(number)}}
	patch := fmt.Sprintf(`{"spec":{"validations":[{"expression":"object.data.number != '%d'","message":%q}]}}`, number, message)
	start := time.Now()
	if err := w.client.Patch(ctx, policy, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return 0, fmt.Errorf("changing policy %s: %w", policy.Name, err)
	}
	err := w.await(ctx, 10*time.Millisecond, message+" is enforced", func() (bool, error) {
		err := w.client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: scaleNamespace(number % scaleGroups), Name: "probe"},
			Data:       map[string]string{"number": strconv.Itoa(number)},
		}, client.DryRunAll)
		if err == nil {
			return false, errors.New("allowed, by no version of the policy")
		}
		return strings.Contains(err.Error(), message), nil
	})
	return time.Since(start), err
}

// writes is how many writes of what Ostiary writes the API server has answered,
// by the labels of the metric, those that changed nothing included. Leases are
// renewed all the time.
func (w *world) writes(ctx context.Context) (map[string]int, error) {
	config := w.cp.Config()
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	defer httpClient.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading the API server's metrics: %w", err)
	}
	defer response.Body.Close()
	return countWrites(response.Body)
}

// more is how many writes came between two counts, and which.
func more(before, after map[string]int) (n int, what string) {
	for _, labels := range slices.Sorted(maps.Keys(after)) {
		if added := after[labels] - before[labels]; added > 0 {
			n += added
			what += fmt.Sprintf("; %d of %s", added, labels)
		}
	}
	return n, what
}

func countWrites(metrics io.Reader) (map[string]int, error) {
	counts, found := map[string]int{}, false
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		labels, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(labels, "apiserver_request_total{") {
			continue
		}
		found = true
		if !isWrite(labels) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("reading the API server's metrics: %w", err)
		}
		counts[strings.TrimPrefix(labels, "apiserver_request_total{")] += int(n)
	}
	if !found {
		return nil, errors.Join(errors.New("the API server's metrics do not count requests"), lines.Err())
	}
	return counts, lines.Err()
}

func isWrite(labels string) bool {
	has := func(label string, values ...string) bool {
		return slices.ContainsFunc(values, func(value string) bool { return strings.Contains(labels, label+`="`+value+`"`) })
	}
	return has("verb", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION") &&
		has("resource", "webhookpolicies", "validatingwebhookconfigurations", "mutatingwebhookconfigurations", "secrets", "events") &&
		!has("dry_run", "All")
}

const (
	scaleReadyBudget   = 5 * time.Second
	scaleMemoryBudget  = 256 // MiB
	scaleChangeBudget  = time.Second
	scaleGroupsBudget  = 150
	scaleClientsBudget = 200
)

// budgets are those of ten thousand policies.
func (s *scale) budgets() []budget {
	prefix := fmt.Sprintf("%d policies: ", s.policies)
	return []budget{
		{what: prefix + "ready after a start", got: s.restarted.Seconds(), limit: scaleReadyBudget.Seconds(), unit: "s"},
		{what: prefix + "a change enforced, p99", got: s.p99().Seconds(), limit: scaleChangeBudget.Seconds(), unit: "s"},
		{what: prefix + "peak memory", got: max(s.applying.peak, s.atRest.peak, s.cold.peak), limit: scaleMemoryBudget, unit: "MiB"},
		{what: prefix + "call groups", got: float64(s.groups), limit: scaleGroupsBudget},
		{what: prefix + "distinct client configurations", got: float64(s.clients), limit: scaleClientsBudget},
		{what: prefix + "writes at rest and in a restart", got: float64(s.writes)},
	}
}

func (s *scale) print(out io.Writer) {
	t := table{"## Scale", []string{"what", "measured"}, nil}
	t.add("policies", fmt.Sprint(s.policies))
	t.add("call groups; distinct client configurations", fmt.Sprintf("%d; %d", s.groups, s.clients))
	t.add("all applied, s", seconds(s.applied))
	t.add("all Ready, s after the first apply", seconds(s.enforce))
	t.add("all types checked, s after the first apply", seconds(s.checked))
	t.add("CPU of the manager until then, s", seconds(s.cpu))
	t.add("memory then, MiB (peak)", fmt.Sprintf("%.0f (%.0f)", s.applying.now, s.applying.peak))
	t.add("ready after another start, s (CPU, s)", fmt.Sprintf("%s (%s)", seconds(s.restarted), seconds(s.restartCPU)))
	t.add("memory after it and a rest, MiB (peak)", fmt.Sprintf("%.0f (%.0f)", s.atRest.now, s.atRest.peak))
	t.add("writes at rest, twice "+scaleRest.String()+", and in the restart", fmt.Sprint(s.writes))
	t.add("one change enforced, s: p50, p99, most", strings.Join([]string{
		fmt.Sprintf("%.2f", s.changes[len(s.changes)/2].Seconds()), fmt.Sprintf("%.2f", s.p99().Seconds()),
		fmt.Sprintf("%.2f", s.changes[len(s.changes)-1].Seconds()),
	}, ", "))
	t.add("CPU of the manager for a change, s", fmt.Sprintf("%.2f", s.changeCPU.Seconds()))
	t.print(out)
}
