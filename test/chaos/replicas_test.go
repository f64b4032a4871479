package chaos

import (
	"fmt"
	"slices"
	"time"
)

// replace has a new replica take the place of one, as a rolling update with
// maxSurge 1 and maxUnavailable 0 does: the old one is ended when the new
// one is ready, and ends in its own time.
func (r *run) replace(m *member) {
	next := r.add(r.T)
	next.start(r.T)
	await(r.T, next.name+" to be ready", func() error {
		if !r.service.Has(next.webhook) {
			return fmt.Errorf("it gets no calls: %w", next.ready(r.Context()))
		}
		return nil
	})
	m.terminate(r.T)
}

// rollingUpdate replaces all replicas, again and again.
func rollingUpdate(r *run) {
	rounds, replaced := r.size.of(1, 20), 0
	var going []*member
	began := time.Now()
	for i := range rounds {
		for _, m := range r.all() {
			if m.leaving.Load() {
				continue
			}
			r.replace(m)
			going = append(going, m)
			replaced++
			// Connections move to the new ones meanwhile.
			pause(r.T, time.Second)
		}
		for _, m := range going {
			m.remove(r.T)
		}
		going = nil
		if r.size == full {
			pause(r.T, time.Until(began.Add(time.Duration(i+1)*51*time.Second)))
		}
	}
	r.note("%d replicas replaced", replaced)
	if want := 100_000; r.size == full && r.load.count() < want {
		r.problem("%d requests, want %d", r.load.count(), want)
	}
}

// scaled scales from three replicas to one, and back, as the drain of nodes does.
func scaled(r *run) {
	for range r.size.of(1, 3) {
		members := r.all()
		for _, m := range members[1:] {
			m.terminate(r.T)
		}
		for _, m := range members[1:] {
			m.remove(r.T)
		}
		pause(r.T, 5*time.Second)
		for range replicas - 1 {
			r.add(r.T).start(r.T)
		}
		r.awaitAll(r.T)
		pause(r.T, 5*time.Second)
		r.replace(members[0])
		members[0].remove(r.T)
	}
}

// replicasKilled kills a replica every ten seconds. It is started again as
// kubelet would.
func replicasKilled(r *run) {
	kills, most := r.size.of(2, 60), 0
	for i := range kills {
		at := time.Now()
		m := r.all()[i%replicas]
		r.kill(m)
		m.restart(r.T)
		pause(r.T, time.Until(at.Add(10*time.Second)))
		r.awaitAll(r.T)
		most = max(most, r.load.failedBetween(at.Add(-15*time.Second), time.Now()))
	}
	r.note("%d kills, %d failed at one at most", kills, most)
}

// replicaPartitioned takes the network of a replica away, in both directions.
// API servers wait for it until a webhook's timeout, and the Service drops it.
func replicaPartitioned(r *run) {
	for i := range r.size.of(1, 3) {
		m := r.all()[i]
		at := time.Now()
		m.gateway.relay.hold()
		r.service.Hold(m.webhook)
		took := await(r.T, m.name+" to be unready", func() error {
			if r.service.Has(m.webhook) {
				return fmt.Errorf("it gets calls")
			}
			return nil
		})
		dropped := time.Now()
		pause(r.T, 20*time.Second)
		r.service.Release(m.webhook)
		m.gateway.relay.release()
		r.awaitAll(r.T)
		failed, of := r.load.failedBetween(at.Add(-10*time.Second), dropped), int(took.Seconds()*rate)
		r.limits.failed += failed
		if failed > of/2 {
			r.problem("%d of about %d requests failed before it was dropped", failed, of)
		}
		r.note("dropped after %s, %d failed until then", took.Round(100*time.Millisecond), failed)
	}
	replicaOutdated(r)
}

// replicaOutdated takes the API servers away from a replica that they go on
// calling, and changes all policies meanwhile: the Service does not drop the
// replica, as where endpoints lag or callers use a URL. When the policies are
// Ready, no answer may follow the earlier generation: not while the replica is
// partitioned, and not when it is back.
func replicaOutdated(r *run) {
	for i := range r.size.of(1, 3) {
		m := r.all()[i]
		began := time.Now()
		r.demand(`request.name != ""`) // which allows what is bad
		r.awaitReady()
		r.frozen.Store(true)
		m.gateway.relay.hold()
		r.demand(`!request.name.startsWith("bad")`)
		took := r.awaitReady()
		ready := time.Now()
		r.load.excuse([][2]time.Time{{began, ready}}) // what has been answered by now
		pause(r.T, time.Duration(r.size.of(20, 30))*time.Second)
		m.gateway.relay.release()
		released := time.Now()
		await(r.T, m.name+" to be ready", func() error { return m.ready(r.Context()) })
		back := time.Now()
		r.frozen.Store(false)
		pause(r.T, 5*time.Second)
		r.load.excuse([][2]time.Time{{began, ready}})
		wrong, failed := r.load.wrongSince(ready), r.load.failedBetween(began, back.Add(time.Second))
		r.limits.failed += failed // a replica that knows that it is outdated answers 503
		r.note("Ready %s after a change that %s did not hear of, %d wrong after that, %d failed meanwhile, back after %s",
			took.Round(100*time.Millisecond), m.name, wrong, failed, back.Sub(released).Round(100*time.Millisecond))
	}
}

// burst is how long after a kill requests may come whose connection ends: those
// that are sent before the Service knows. Ordinarily it is a fraction of it.
const burst = 3 * time.Second

// lost is how many requests failed because of replicas that were killed: their
// connection ended, and they were under way then, or came soon after. It also
// tells how long after.
func (r *run) lost() (n int, longest time.Duration) {
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	for _, q := range r.load.done {
		if after, ok := r.killed(q); ok {
			n++
			longest = max(longest, after)
		}
	}
	return n, longest
}

// killed reports whether a kill explains the failure of a request, and how long
// after it that was sent.
func (r *run) killed(q *request) (time.Duration, bool) {
	if q.outcome != failed || !q.broke {
		return 0, false
	}
	i := slices.IndexFunc(r.kills, func(at time.Time) bool {
		return q.sent.Before(at.Add(burst)) && q.answered.After(at)
	})
	if i < 0 {
		return 0, false
	}
	return q.sent.Sub(r.kills[i]), true
}

// kill kills a replica on purpose.
func (r *run) kill(m *member) {
	r.kills = append(r.kills, time.Now())
	m.kill()
}
