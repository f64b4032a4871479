package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/registration"
)

const (
	attackedPlace = "chaos-attacked"
	// attackers send at the same time, each one request after the other.
	attackers = 6
	// memoryLimit is that of the installation's manifests, in bytes.
	memoryLimit = 512 << 20
)

// attack is the task of a process of attackers, as JSON in the environment.
type attack struct {
	Kind      string            // a key of assaults
	Addresses []string          // of replicas
	Paths     []string          // that are registered, of every webhook of Ostiary
	Attacked  []string          // those of them that the attacked policies have
	Review    string            // the path of the review of policies
	Witness   string            // the path of a policy that denies what begins with "bad" in attackedPlace
	Aims      map[string]string // the paths of those by the names of the policies
	Seed      uint64
	Count     int           // of answers of each kind that the attack must have
	Over      time.Duration // the longest that it takes
	Lasts     time.Duration // the shortest that it takes, of attacks that go on
	Health    string        // the address of a replica's health port
	Metrics   string        // likewise, of its metrics port
	Tenancy   tenancy       // of attacks through API servers
}

// attackCounts are what a process of attackers reports, as JSON on its standard output.
type attackCounts struct {
	Attempts  int
	Codes     map[string]int // HTTP status codes, and "broken" for connections that ended
	Kinds     map[string]int // what replicas had to work for, by kind
	Witnesses int            // requests among them whose answer is known
	Wrong     []string       // answers that must not be given
}

const attackVariable = "OSTIARY_CHAOS_ATTACK"

// niceness of attackers. They have processors of their own, which they do not have
// here: they get a third of what anybody else gets who wants as much.
const niceness = "5"

// startAttack starts this program anew with a lower priority. The result waits for
// the end of the attack and returns its report, and the processor time it took.
func (r *run) startAttack(a attack) (wait func() (attackCounts, time.Duration)) {
	for _, m := range r.all() {
		a.Addresses = append(a.Addresses, m.webhook)
	}
	r.addPaths(&a)
	what, err := json.Marshal(a)
	must(r.T, err)
	own, err := os.Executable()
	must(r.T, err)
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(r.Context(), "nice", "-n", niceness, own)
	cmd.Env = append(os.Environ(), attackVariable+"="+string(what))
	cmd.Stdout, cmd.Stderr = &out, &errs
	must(r.T, cmd.Start())
	return func() (t attackCounts, cpu time.Duration) {
		if err := cmd.Wait(); err != nil {
			r.problem("the attackers of kind %s: %v: %s", a.Kind, err, &errs)
			return t, 0
		}
		cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if err := json.Unmarshal(out.Bytes(), &t); err != nil {
			r.problem("the attackers of kind %s reported %q: %v", a.Kind, out.String(), err)
		}
		return t, cpu
	}
}

// addPaths looks up the paths of all webhooks that Ostiary has registered, as
// whoever may read their configurations can.
func (r *run) addPaths(a *attack) {
	configs, err := r.configs(r.Context())
	must(r.T, err)
	a.Aims = map[string]string{}
	for _, c := range configs {
		path := *registration.Webhooks(c)[0].ClientConfig.Service.Path
		a.Paths = append(a.Paths, path)
		members := c.GetAnnotations()[registration.AnnotationMembers]
		if strings.Contains(members, "attacked-") {
			a.Attacked = append(a.Attacked, path)
		}
		for name := range strings.SplitSeq(members, ",") {
			a.Aims[name] = path
		}
	}
	a.Witness = a.Aims["attacked-names"]
	review := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	must(r.T, r.admin().Get(r.Context(), client.ObjectKey{Name: registration.ReviewConfiguration}, review))
	a.Review = *review.Webhooks[0].ClientConfig.Service.Path
}

// prepareAttack applies the policies that are attacked, waits until they are in
// force, and limits the memory of all replicas.
func (r *run) prepareAttack() {
	r.limits.quiet = true
	await(r.T, "the policies that are attacked to be applied", func() error { // a kind that is new is not served at once
		cmd := exec.CommandContext(r.Context(), r.plane.Kubectl(), "apply", "-f", "testdata/attack/policies.yaml")
		cmd.Env = []string{"HOME=" + r.dir, "KUBECONFIG=" + r.plane.Kubeconfig()}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kubectl apply: %w: %s", err, out)
		}
		return nil
	})
	await(r.T, "the policies that are attacked", func() error {
		var list v1alpha1.WebhookPolicyList
		if err := r.admin().List(r.Context(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := isReady(&list.Items[i]); err != nil && strings.HasPrefix(list.Items[i].Name, "attacked-") {
				return err
			}
		}
		return nil
	})
	for i := range apiServers {
		await(r.T, "a denial of what is bad", func() error {
			err := r.admins[i].Create(r.Context(), bomb("bad-probe", nil), client.DryRunAll)
			if err == nil || !strings.Contains(err.Error(), "bad is not good") {
				return fmt.Errorf("it is not denied: %w", err)
			}
			return nil
		})
	}
	r.limitReplicas()
}

// limitReplicas gives every replica the memory of the installation.
func (r *run) limitReplicas() {
	for _, m := range r.all() {
		must(r.T, m.limitMemory(memoryLimit))
	}
}

func isReady(p *v1alpha1.WebhookPolicy) error {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" && c.ObservedGeneration == p.Generation {
			return nil
		}
	}
	return fmt.Errorf("policy %s is not ready: %+v", p.Name, p.Status.Conditions)
}

// endAttack deletes the policies that prepareAttack has made. Their namespace
// stays: nothing here ends one that is being deleted.
func (r *run) endAttack() { r.deletePolicies("attacked-") }

// bomb is a custom resource with any content.
func bomb(name string, spec any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "attack.example.com", Version: "v1", Kind: "Bomb"})
	u.SetNamespace(attackedPlace)
	u.SetName(name)
	return u
}

// under runs attacks while the load goes on, and weighs what came of them: no
// wrong answer, no panic, no replica that was ended, and a load that is answered.
func (r *run) under(attacks ...attack) {
	period := time.Duration(r.size.of(5, 30)) * time.Second
	mark := time.Now()
	pause(r.T, period)
	before := r.load.p99Since(mark)
	mark = time.Now()
	replicas, theirs := r.cpu(), time.Duration(0)
	var waits []func() (attackCounts, time.Duration)
	for _, a := range attacks {
		a.Seed = uint64(time.Now().UnixNano())
		if *seed != 0 {
			a.Seed = *seed
		}
		r.note("%s has seed %d", a.Kind, a.Seed)
		waits = append(waits, r.startAttack(a))
	}
	for i, wait := range waits {
		t, cpu := wait()
		theirs += cpu
		r.weighCounts(attacks[i], t)
	}
	during := r.load.p99Since(mark)
	r.note("p99 %s before and %s meanwhile, %s of CPU for the attackers and %s for the replicas in %s",
		before.Round(time.Millisecond), during.Round(time.Millisecond),
		theirs.Round(time.Second), (r.cpu() - replicas).Round(time.Second), time.Since(mark).Round(time.Second))
	r.weighReplicas(memoryLimit)
}

func (r *run) weighCounts(a attack, t attackCounts) {
	kind := a.Kind
	var codes []string
	rejected := 0
	for code, n := range t.Codes {
		codes = append(codes, fmt.Sprintf("%s: %d", code, n))
		if !strings.HasPrefix(code, "2") {
			rejected += n
		}
		if code == "500" {
			r.problem("%d requests of kind %s were answered with 500", n, kind)
		}
	}
	slices.Sort(codes)
	r.note("%s: %d attempts, %d rejected (%s), %d with a known answer", kind, t.Attempts, rejected, strings.Join(codes, ", "), t.Witnesses)
	if len(t.Wrong) > 0 {
		r.problem("%d answers to requests of kind %s were wrong", len(t.Wrong), kind)
		r.evidence = append(r.evidence, t.Wrong...)
	}
	kinds := assaults()[kind].kinds
	r.note("%d kinds of %s, %d answers of each demanded", len(kinds), kind, a.Count)
	for _, missing := range tooFew(kinds, a.Count, t) {
		r.problem("%s", missing)
	}
}

// tooFew says of which kinds fewer than least were answered.
func tooFew(kinds []string, least int, t attackCounts) (out []string) {
	for _, kind := range kinds {
		if n := t.Kinds[kind]; n < least {
			out = append(out, fmt.Sprintf("%d answers of kind %s, want %d", n, kind, least))
		}
	}
	return out
}

// TestTooFewAttempts checks that an attack that reaches too little is no proof.
func TestTooFewAttempts(t *testing.T) {
	for name, tc := range map[string]struct {
		counts attackCounts
		want   int
	}{
		"nothing":           {attackCounts{}, 2},
		"none of one kind":  {attackCounts{Attempts: 100, Kinds: map[string]int{"a": 10}}, 1},
		"too few of a kind": {attackCounts{Kinds: map[string]int{"a": 10, "b": 9}}, 1},
		"enough":            {attackCounts{Kinds: map[string]int{"a": 10, "b": 11}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tooFew([]string{"a", "b"}, 10, tc.counts); len(got) != tc.want {
				t.Errorf("got %q, want %d", got, tc.want)
			}
		})
	}
}

// weighReplicas looks at what attacks must not do to replicas, which may take less
// than a limit of memory, in bytes.
func (r *run) weighReplicas(limit int) {
	most := 0
	for _, m := range r.all() {
		if m.ended() {
			r.problem("%s was ended: %v", m.name, m.running.Err())
			continue
		}
		most = max(most, m.memory(r))
		metrics, err := m.scrape(r.Context())
		if err != nil {
			r.problem("%s serves no metrics: %v", m.name, err)
		}
		for _, name := range []string{"ostiary_policy_panics_total", "ostiary_webhook_panics_total"} {
			if n := sumOf(metrics, name); n > 0 {
				r.problem("%s counts %v in %s", m.name, n, name)
			}
		}
		if n := m.oomKills(); n > 0 {
			r.problem("the memory limit ended %s", m.name)
		}
	}
	r.note("%d MiB of memory at most, of %d", most>>10, limit>>20)
	if most<<10 >= limit {
		r.problem("a replica took %d MiB", most>>10)
	}
}

// sumOf adds up the samples of a metric.
func sumOf(metrics, name string) (sum float64) {
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name) {
			continue
		}
		if fields := strings.Fields(line); len(fields) == 2 {
			n, _ := strconv.ParseFloat(fields[1], 64)
			sum += n
		}
	}
	return sum
}

// attackMain is what a process of attackers does.
func attackMain(text string) (code int) {
	var a attack
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	assault, ok := assaults()[a.Kind]
	if !ok {
		fmt.Fprintf(os.Stderr, "no attack of kind %q\n", a.Kind)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if a.Over > 0 {
		ctx, cancel = context.WithTimeout(ctx, a.Over)
		defer cancel()
	}
	report := newReport()
	assault.send(ctx, a, report)
	if err := json.NewEncoder(os.Stdout).Encode(report.counts()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
