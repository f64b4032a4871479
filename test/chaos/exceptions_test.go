package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// exceptionPlace is the place whose policy permits exceptions.
	exceptionPlace = places - 1
	exceptedRule   = "never-bad"
	// exceptionLag is how long after its acknowledged deletion an exception may have an effect.
	exceptionLag = 30 * time.Second
	stallTime    = 45 * time.Second
	// settledAfter is how long all answers have to agree with a change that has its effect.
	settledAfter = 2500 * time.Millisecond
	// probesAtOnce are sent every probeInterval, half of them through API servers and half of them to
	// any replica that gets calls.
	probesAtOnce  = 8
	probeInterval = 100 * time.Millisecond
	measuredSlots = 4
	churnedSlots  = 6
)

// excepted is an object that only its exception lets pass. It never has a second exception, but its
// exception has the name of earlier ones for other objects.
type excepted struct {
	name, exception string
	asked           time.Time // when the creation of the exception was sent; zero before
	created         time.Time // when it was acknowledged
	deleted         time.Time // when the deletion was acknowledged
	answers         []*request
}

// changedExceptions are the objects of a run. mu guards them, and their fields.
type changedExceptions struct {
	*run
	mu      sync.Mutex
	objects []*excepted
	took    map[string][]time.Duration // delays of effects, by what had changed
	caller  *caller

	objectOf func(*excepted) client.Object // lets an object pass
	lag      time.Duration                 // for which it may do so after its deletion
	decision string                        // of a request that it lets pass, in metrics
	breakAll func(every bool)              // a round of faults
}

// watchedAfter is how long after a deletion requests are sent.
func (e *changedExceptions) watchedAfter() time.Duration { return e.lag + 15*time.Second }

// exceptionsChanged creates and deletes exceptions while the leader and a replica are killed, and
// another replica does not hear of changes.
func exceptionsChanged(r *run) {
	e := &changedExceptions{run: r, took: map[string][]time.Duration{}, objectOf: exceptionOf, lag: exceptionLag, decision: "excepted"}
	e.breakAll = e.stallAndKill
	defer e.judge()
	e.permit()
	defer e.forbid()
	e.change()
}

// change changes objects, first without faults, then with them.
func (e *changedExceptions) change() {
	r := e.run
	e.caller = r.newCaller(exceptionPlace)
	ctx, cancel := context.WithCancel(r.Context())
	var probes sync.WaitGroup
	probes.Go(func() { e.probe(ctx) })
	defer probes.Wait()
	defer cancel()
	e.measure(r.size.of(4, 20))
	e.underFaults()
	churned := time.Now()
	e.measure(r.size.of(8, 20))
	pause(r.T, time.Until(churned.Add(e.watchedAfter())))
	e.weighDelays()
}

// permit has the policy permit exceptions.
func (e *changedExceptions) permit() {
	validations := policy(exceptionPlace).Spec.Validations
	validations[0].Name = exceptedRule
	e.patchPolicy(map[string]any{"exceptions": v1alpha1.Exceptions{}, "validations": validations})
	e.awaitReady()
}

// forbid deletes what is left, and has the policy be as in other scenarios.
func (e *changedExceptions) forbid() {
	must(e.T, e.admin().DeleteAllOf(e.Context(), &v1alpha1.WebhookPolicyException{}, client.InNamespace(place(exceptionPlace))))
	e.patchPolicy(map[string]any{"exceptions": nil, "validations": policy(exceptionPlace).Spec.Validations})
	e.awaitReady()
}

func (e *changedExceptions) patchPolicy(spec map[string]any) {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	must(e.T, err)
	must(e.T, e.admin().Patch(e.Context(), policy(exceptionPlace), client.RawPatch(types.MergePatchType, patch)))
}

// add has requests be sent for an object that has no exception yet.
func (e *changedExceptions) add(exception string) *excepted {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := &excepted{name: fmt.Sprintf("bad-excepted-%d", len(e.objects)), exception: exception}
	e.objects = append(e.objects, o)
	return o
}

func (e *changedExceptions) stamp(at *time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*at = time.Now()
}

func exceptionOf(o *excepted) client.Object {
	return &v1alpha1.WebhookPolicyException{
		ObjectMeta: metav1.ObjectMeta{Namespace: place(exceptionPlace), Name: o.exception},
		Spec: v1alpha1.WebhookPolicyExceptionSpec{
			PolicyName:  place(exceptionPlace),
			Validations: []string{exceptedRule},
			Match:       []v1alpha1.ExceptionMatch{{Resources: []string{"configmaps"}, Names: []string{o.name}}},
			Reason:      "chaos",
		},
	}
}

// create and remove return after the API server has acknowledged the change.
func (e *changedExceptions) create(o *excepted) error {
	e.stamp(&o.asked)
	err := e.admins[rand.IntN(apiServers)].Create(e.Context(), e.objectOf(o))
	e.stamp(&o.created)
	return err
}

func (e *changedExceptions) remove(o *excepted) error {
	err := e.admins[rand.IntN(apiServers)].Delete(e.Context(), e.objectOf(o))
	e.stamp(&o.deleted)
	return err
}

// probe sends requests until ctx ends, and waits for their answers.
func (e *changedExceptions) probe(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for i := range probesAtOnce {
				group.Go(func() { e.ask(context.WithoutCancel(ctx), i) })
			}
		}
	}
}

func (e *changedExceptions) ask(ctx context.Context, n int) {
	o := e.choose()
	q := &request{place: exceptionPlace, server: n % apiServers, verb: create, name: "bad-never-excepted"}
	if o != nil {
		q.name = o.name
	}
	if n < probesAtOnce/2 {
		e.load.send(ctx, q)
	} else if !e.call(ctx, q) {
		return
	}
	if o != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		o.answers = append(o.answers, q)
	}
}

// call sends a request to any replica that gets calls, and returns false if there is none. As API
// servers do, it repeats a call that a replica answers with 503, because it is not ready.
func (e *changedExceptions) call(ctx context.Context, q *request) bool {
	for began := time.Now(); ; time.Sleep(probeInterval) {
		called := e.called()
		if len(called) == 0 {
			return false
		}
		text := e.callOne(ctx, called[rand.IntN(len(called))], q)
		if q.code != http.StatusServiceUnavailable || time.Since(began) > 5*time.Second {
			e.load.keep(q, text)
			return true
		}
	}
}

func (e *changedExceptions) called() []*member {
	return slices.DeleteFunc(e.all(), func(m *member) bool { return !e.service.Has(m.webhook) })
}

func (e *changedExceptions) callOne(ctx context.Context, m *member, q *request) (text string) {
	q.sent = time.Now()
	q.outcome, text = e.caller.call(ctx, m, q)
	return text
}

// choose returns one of the objects that change, one of those whose exception was deleted a while
// ago, or nil.
func (e *changedExceptions) choose() *excepted {
	e.mu.Lock()
	defer e.mu.Unlock()
	var changing, old []*excepted
	for _, o := range e.objects {
		switch age := time.Since(o.deleted); {
		case o.deleted.IsZero(), age < 2*settledAfter:
			changing = append(changing, o)
		case age < e.watchedAfter():
			old = append(old, o)
		}
	}
	among := changing
	switch n := rand.IntN(8); {
	case n == 0:
		return nil
	case n < 4 && len(old) > 0:
		among = old
	}
	if len(among) == 0 {
		return nil
	}
	return among[rand.IntN(len(among))]
}

// measure changes exceptions without a fault, and keeps the delays of the effects.
func (e *changedExceptions) measure(cycles int) {
	before := e.exceptedBy()
	var group sync.WaitGroup
	for slot := range measuredSlots {
		group.Go(func() {
			for range cycles {
				if err := e.measureOne(fmt.Sprintf("measured-%d", slot)); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for name, n := range e.exceptedBy() {
		if n == before[name] {
			e.problem("%s has excepted no request: the delays do not show its own", name)
		}
	}
}

func (e *changedExceptions) measureOne(exception string) error {
	o := e.add(exception)
	if err := e.create(o); err != nil {
		return err
	}
	if err := e.settle(o, "created", o.created, denied); err != nil {
		return err
	}
	if err := e.remove(o); err != nil {
		return err
	}
	return e.settle(o, "deleted", o.deleted, allowed)
}

// settle waits until the answers about an object agree with a change, and keeps how long after it a
// request was sent whose answer did not.
func (e *changedExceptions) settle(o *excepted, change string, from time.Time, contrary outcome) error {
	e.askEach(o, from)
	for time.Since(from) < timeout && e.Context().Err() == nil {
		behind, agreed := e.behind(o, from, contrary)
		if time.Since(from)-behind > settledAfter && agreed >= 10 {
			e.mu.Lock()
			e.took[change] = append(e.took[change], behind)
			e.mu.Unlock()
			return nil
		}
		pause(e.T, probeInterval)
	}
	return fmt.Errorf("%s has no effect everywhere %s after it was %s", o.exception, time.Since(from).Round(time.Second), change)
}

// askEach asks each replica about an object, again and again right after a change.
func (e *changedExceptions) askEach(o *excepted, from time.Time) {
	for time.Since(from) < settledAfter/5 {
		for _, m := range e.called() {
			q := &request{place: exceptionPlace, verb: create, name: o.name}
			e.load.keep(q, e.callOne(e.Context(), m, q))
			e.mu.Lock()
			o.answers = append(o.answers, q)
			e.mu.Unlock()
		}
		pause(e.T, probeInterval/5)
	}
}

// behind returns how long after a time the last request was sent that got the contrary answer, and
// how many later ones got the other one.
func (e *changedExceptions) behind(o *excepted, from time.Time, contrary outcome) (behind time.Duration, agreed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, q := range o.answers {
		if q.outcome == contrary {
			behind = max(behind, q.sent.Sub(from))
		}
	}
	for _, q := range o.answers {
		if q.sent.Sub(from) > behind && (q.outcome == allowed || q.outcome == denied) {
			agreed++
		}
	}
	return behind, agreed
}

// exceptedBy returns how many requests each replica has excepted.
func (e *changedExceptions) exceptedBy() map[string]int {
	series := fmt.Sprintf(`ostiary_policy_requests_total{decision=%q,operation="CREATE",policy=%q} `, e.decision, place(exceptionPlace))
	out := map[string]int{}
	for _, m := range e.all() {
		text, err := m.scrape(e.Context())
		must(e.T, err)
		_, rest, found := strings.Cut(text, series)
		if out[m.name] = 0; found {
			value, _, _ := strings.Cut(rest, "\n")
			out[m.name], err = strconv.Atoi(value)
			must(e.T, err)
		}
	}
	return out
}

// underFaults changes exceptions while faults come and go.
func (e *changedExceptions) underFaults() {
	ctx, cancel := context.WithCancel(e.Context())
	var group sync.WaitGroup
	for slot := range churnedSlots {
		group.Go(func() {
			for ctx.Err() == nil {
				if err := e.churn(fmt.Sprintf("churned-%d", slot)); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	defer group.Wait()
	defer cancel()
	pause(e.T, 2*settledAfter)          // a replica has to have exceptions that are deleted
	longest := map[bool]time.Duration{} // by whether every watch was stalled
	for i := range e.size.of(2, 8) {
		every, began := i%2 == 0, time.Now()
		e.breakAll(every)
		longest[every] = max(longest[every], e.longestAfterDeletion(began))
		pause(e.T, 2*settledAfter)
	}
	e.note("excepted up to %s after a deletion while watches got no response, %s while open ones got none",
		longest[true].Round(100*time.Millisecond), longest[false].Round(100*time.Millisecond))
	if longest[true] < e.lag/2 {
		e.problem("no replica was behind: the harness is blind")
	}
}

// stallAndKill kills the leader and then another replica, while the third one does not hear of changes
// of exceptions.
func (e *changedExceptions) stallAndKill(every bool) {
	leader := e.leader(e.T)
	others := slices.DeleteFunc(e.all(), func(m *member) bool { return m == leader })
	stale, victim := others[0], others[1]
	began := time.Now()
	stale.gateway.stallWatches(every)
	defer stale.gateway.releaseWatches()
	pause(e.T, 3*time.Second)
	for _, m := range []*member{leader, victim} {
		e.logf("killing %s", m.name)
		e.kill(m)
		m.restart(e.T)
		pause(e.T, 5*time.Second)
		e.awaitAll(e.T)
	}
	pause(e.T, time.Until(began.Add(stallTime)))
}

// longestAfterDeletion returns how long after a deletion since a time an object was still excepted.
func (e *changedExceptions) longestAfterDeletion(since time.Time) (longest time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.objects {
		if o.deleted.Before(since) {
			continue // or not deleted
		}
		for _, q := range o.answers {
			if q.outcome == allowed {
				longest = max(longest, q.sent.Sub(o.deleted))
			}
		}
	}
	return longest
}

func (e *changedExceptions) churn(exception string) error {
	o := e.add(exception)
	pause(e.T, 300*time.Millisecond)
	if err := e.create(o); err != nil {
		return err
	}
	pause(e.T, time.Second+time.Duration(rand.IntN(4000))*time.Millisecond)
	return e.remove(o)
}

// weighDelays requires that changes without a fault have their effect soon.
func (e *changedExceptions) weighDelays() {
	for _, change := range []string{"created", "deleted"} {
		took := e.took[change]
		p99 := percentile(took, 99)
		e.within("the effect of an exception that is "+change+" (p99)", p99, 2*time.Second)
		e.note("%d %s, in effect after %s (p50), %s (p99)", len(took), change,
			percentile(took, 50).Round(time.Millisecond), p99.Round(time.Millisecond))
	}
}

// judge excuses the requests that an exception let pass in its time.
func (e *changedExceptions) judge() {
	e.mu.Lock()
	defer e.mu.Unlock()
	byName := map[string]*excepted{}
	for _, o := range e.objects {
		byName[o.name] = o
	}
	e.load.mu.Lock()
	defer e.load.mu.Unlock()
	var early, late, passed int
	for _, q := range e.load.done {
		if q.place != exceptionPlace || q.outcome != allowed || !q.wrong {
			continue
		}
		switch o := byName[q.name]; {
		case o == nil || o.asked.IsZero() || q.answered.Before(o.asked):
			early++
		case !o.deleted.IsZero() && q.sent.After(o.deleted.Add(e.lag)):
			late++
		default:
			passed++
			q.wrong = false
		}
	}
	if early > 0 {
		e.problem("%d requests passed without an exception", early)
	}
	if late > 0 {
		e.problem("%d requests passed more than %s after the exception was deleted", late, e.lag)
	}
	e.note("%d excepted by %d exceptions", passed, len(e.objects))
}
