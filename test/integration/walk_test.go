package integration

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/policies"
	"github.com/ostiary/ostiary/internal/registration"
	"github.com/ostiary/ostiary/test/balancer"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

var walkSeed = flag.Uint64("walk-seed", 1, "seed of the random walk")

const (
	walkOperations, walkOperationsShort = 1000, 300

	walkBurst   = 40 // operations at a time; then all of them have to settle
	walkSlots   = 12
	walkProbers = 4
	walkPause   = 5 * time.Millisecond // between two requests of a prober
	// walkNotice is how long API servers may go on using connections to a replica
	// that was killed: one that they keep fails once, with the request that takes it.
	walkNotice = time.Second
)

// walkSpec is what the walk changes about a policy.
type walkSpec struct {
	timeout int32 // policies move between call groups with it
	rules   int   // and the rules of a group change with it
}

// walk is a random walk under way.
type walk struct {
	*cluster
	client    client.Client // without a limit of its own
	namespace string
	random    *rand.Rand
	written   int // operations
	slots     [walkSlots]history
	balancer  *balancer.Balancer
	replicas  []*process
	down      int // the replica that was killed, -1 for none
	outages   []outage
}

// Promise: no request is ever allowed or denied wrongly, whatever happens to
// policies and replicas, and the configurations end up as planned.
func TestRandomWalk(t *testing.T) {
	c := install(t)
	w := c.startWalk(t)
	t.Logf("seed %d: repeat with -walk-seed=%d", *walkSeed, *walkSeed)
	stop := w.probe(t)
	operations := walkOperations
	if testing.Short() {
		operations = walkOperationsShort
	}
	for w.written < operations {
		w.burst(t)
		w.settle(t)
		w.stay(t)
	}
	stop()
	var sum walkCounts
	for i := range w.slots {
		w.slots[i].check(w.outages, &sum)
	}
	t.Logf("%d operations, %d kills; %d answers with one right answer, %d while something changed, %d without an answer beside a kill",
		w.written, len(w.outages), sum.strict, sum.moving, sum.unreachable)
	for _, wrong := range sum.wrong[:min(len(sum.wrong), 5)] {
		t.Errorf("seed %d, one of %d: %s", *walkSeed, len(sum.wrong), wrong)
	}
	if limit := len(w.outages) * walkProbers; sum.unreachable > limit {
		t.Errorf("%d requests had no answer, want at most %d: those under way when it was noticed", sum.unreachable, limit)
	}
	if sum.strict < operations || len(w.outages) < operations/250 {
		t.Errorf("the walk proves nothing: %d answers, %d kills", sum.strict, len(w.outages))
	}
	w.wantPlanned(t)
}

func (c *cluster) startWalk(t *testing.T) *walk {
	t.Helper()
	c.manager(t)
	c.awaitNoPolicies(t)
	w := &walk{cluster: c, random: rand.New(rand.NewPCG(*walkSeed, 1)), down: -1}
	config := rest.CopyConfig(c.config)
	config.QPS = -1
	var err error
	w.client, err = client.New(config, client.Options{Scheme: c.Scheme(), Mapper: c.RESTMapper()})
	must(t, err)
	w.namespace = c.namespace(t, nil)
	for i := range w.slots {
		w.slots[i].steps = []step{{kind: "absent", begin: time.Now(), settled: time.Now()}}
	}
	c.shared.kill()
	c.releaseLease(t)
	w.balancer = balance(t, c.webhook)
	t.Cleanup(func() { _ = c.DeleteAllOf(context.Background(), &v1alpha1.WebhookPolicy{}) })
	for _, name := range []string{c.shared.replica, "walker"} { // the first goes on as the shared one
		m := w.run(t, name, cptest.FreeAddress())
		t.Cleanup(func() { w.endAll(m.replica) })
		w.replicas = append(w.replicas, m)
		m.awaitReady(t)
		w.balancer.Add(m.webhook)
	}
	c.awaitLeader(t)
	return w
}

func (w *walk) run(t *testing.T, name, address string) *process {
	t.Helper()
	m := w.startAs(t, name, address)
	w.explain(t, m)
	return m
}

// endAll ends the processes that a replica has been by now.
func (w *walk) endAll(name string) {
	for _, m := range w.replicas {
		if m.replica == name {
			w.end(m)
		}
	}
}

func slotName(slot int) string { return fmt.Sprintf("walk-%02d", slot) }

// policy is the one of a slot: it refuses the ConfigMaps that name the slot.
func (w *walk) policy(slot int, s step) *v1alpha1.WebhookPolicy {
	return newPolicy(slotName(slot), w.namespace, within(s.spec.timeout), func(p *v1alpha1.WebhookPolicy) {
		validation := v1alpha1.Validation{
			Expression: fmt.Sprintf(`!has(object.data) || !("slot" in object.data) || object.data.slot != "%d"`, slot),
			Message:    s.say,
		}
		if s.say == "" {
			validation = v1alpha1.Validation{Expression: "true", Message: "never said"}
		}
		p.Spec.Validations = []v1alpha1.Validation{validation}
		for i := range s.spec.rules {
			p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, rule("apps", fmt.Sprintf("things%d", i), "DELETE"))
		}
	})
}

// next is a random operation on a slot.
func (w *walk) next(slot int, exists bool) step {
	w.written++
	s := step{kind: "update", spec: walkSpec{timeout: 20 + 5*w.random.Int32N(3), rules: w.random.IntN(2)}}
	switch {
	case !exists:
		s.kind = "create"
	case w.random.IntN(4) == 0:
		return step{kind: "delete"}
	}
	if w.random.IntN(5) > 0 {
		s.say = fmt.Sprintf("slot %d version %d.", slot, w.written)
	}
	return s
}

// burst does many operations at once, those on one slot one after the other,
// and perhaps kills a replica meanwhile.
func (w *walk) burst(t *testing.T) {
	t.Helper()
	var plan [walkSlots][]step
	for range min(walkBurst, walkOperations-w.written) {
		slot := w.random.IntN(walkSlots)
		last := w.slots[slot].last()
		if n := len(plan[slot]); n > 0 {
			last = plan[slot][n-1]
		}
		plan[slot] = append(plan[slot], w.next(slot, last.kind == "create" || last.kind == "update"))
	}
	kill, after := w.random.IntN(3) == 0, time.Duration(w.random.IntN(300))*time.Millisecond
	var running sync.WaitGroup
	failed := make([]error, walkSlots)
	for slot, steps := range plan {
		running.Go(func() {
			for _, s := range steps {
				failed[slot] = errors.Join(failed[slot], w.do(t.Context(), slot, s))
			}
		})
	}
	if kill {
		time.Sleep(after)
		w.kill(t)
	}
	running.Wait()
	must(t, errors.Join(failed...))
}

func (w *walk) do(ctx context.Context, slot int, s step) error {
	p := w.policy(slot, s)
	patch, err := json.Marshal(map[string]any{"spec": p.Spec})
	if err != nil {
		return err
	}
	s.begin = time.Now()
	w.slots[slot].begin(s)
	switch s.kind {
	case "create":
		err = w.client.Create(ctx, p)
	case "update":
		err = w.client.Patch(ctx, p, client.RawPatch(types.MergePatchType, patch))
	default:
		err = w.client.Delete(ctx, p)
	}
	return err
}

// kill ends a replica without a word and starts it again.
func (w *walk) kill(t *testing.T) {
	t.Helper()
	w.down = w.random.IntN(len(w.replicas))
	m := w.replicas[w.down]
	lease, err := w.lease(t.Context())
	must(t, err)
	log, err := m.output()
	must(t, err)
	begin := time.Now()
	m.kill()
	w.balancer.Drop(m.webhook)
	w.outages = append(w.outages, outage{begin: begin, end: time.Now().Add(walkNotice)})
	if strings.Contains(log, *lease.Spec.HolderIdentity) {
		w.releaseLease(t)
	}
	w.replicas[w.down] = w.run(t, m.replica, m.webhook)
}

// stay lets the world be for a moment, in which a replica may die too.
func (w *walk) stay(t *testing.T) {
	t.Helper()
	time.Sleep(time.Duration(w.random.IntN(300)) * time.Millisecond)
	if w.random.IntN(4) == 0 {
		w.kill(t)
		w.awaitReplica(t)
	}
}

func (w *walk) awaitReplica(t *testing.T) {
	t.Helper()
	if w.down < 0 {
		return
	}
	m := w.replicas[w.down]
	m.awaitReady(t)
	w.balancer.Add(m.webhook)
	w.down = -1
}

// settle waits until every operation has taken effect on every replica.
func (w *walk) settle(t *testing.T) {
	t.Helper()
	w.awaitReplica(t)
	there := 0
	for slot := range w.slots {
		if last := w.slots[slot].last(); last.kind == "create" || last.kind == "update" {
			w.awaitReady(t, slotName(slot))
			there++
		}
	}
	for _, m := range w.replicas {
		w.awaitHeld(t, m, there)
	}
	for slot := range w.slots {
		h := &w.slots[slot]
		await(t).Eventually(func() error {
			if r := w.ask(t.Context(), slot); r.String() != h.last().want() {
				return fmt.Errorf("slot %d: got %s, want %s", slot, r, h.last().want())
			}
			return nil
		}).Should(Succeed())
		h.settle(time.Now())
	}
}

// awaitHeld waits until a replica holds no more policies than there are: nothing
// reports when it has dropped deleted policies.
func (w *walk) awaitHeld(t *testing.T, m *process, there int) {
	t.Helper()
	await(t).Eventually(func() float64 { return m.series(t, `ostiary_policies{state="accepted"}`) }).Should(BeEquivalentTo(there), m.replica)
}

var walkMessage = regexp.MustCompile(`slot \d+ version \d+\.`)

func (w *walk) ask(ctx context.Context, slot int) reply {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"},
		Data:       map[string]string{"slot": fmt.Sprint(slot)},
	}
	r := reply{begin: time.Now()}
	err := w.client.Create(ctx, object, client.DryRunAll)
	r.end = time.Now()
	switch {
	case err == nil:
	case deniedBy(err, slotName(slot)) && walkMessage.MatchString(err.Error()):
		r.say = walkMessage.FindString(err.Error())
	case unreachable(err):
		r.failed = err.Error()
	default:
		r.other = err.Error()
	}
	return r
}

// probe asks about random slots without a pause, until stopped.
func (w *walk) probe(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range walkProbers {
		random := rand.New(rand.NewPCG(*walkSeed, uint64(2+i)))
		running.Go(func() {
			for ctx.Err() == nil {
				slot := random.IntN(walkSlots)
				if r := w.ask(ctx, slot); ctx.Err() == nil {
					w.slots[slot].record(r)
				}
				time.Sleep(walkPause)
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// wantPlanned checks that the configurations are what the policies ask for, and
// that nothing is written any more.
func (w *walk) wantPlanned(t *testing.T) {
	t.Helper()
	var list v1alpha1.WebhookPolicyList
	must(t, w.List(t.Context(), &list))
	in := registration.Input{Endpoint: registration.Endpoint{URL: "https://" + w.webhook}, ExemptNamespaces: []string{systemNamespace}}
	for i := range list.Items {
		in.Policies = append(in.Policies, &list.Items[i])
	}
	await(t).Eventually(func() error {
		observed, err := policies.Configurations(t.Context(), w)
		if err != nil {
			return err
		}
		for _, config := range observed {
			in.CABundle = registration.Webhooks(config)[0].ClientConfig.CABundle
			in.Capability = registration.TrustIn(observed, in.Endpoint).Capabilities[0]
		}
		if changes := registration.Diff(registration.Build(in), observed); !changes.Empty() {
			return fmt.Errorf("seed %d: %d configurations to apply, %d to delete", *walkSeed, len(changes.Apply), len(changes.Delete))
		}
		return nil
	}).Should(Succeed())
	w.wantNoWrites(t, w.rest(t))
}
