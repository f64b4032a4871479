package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/registration"
)

// stop stops an API server as a rolling update does: those who balance between
// API servers know first.
func (r *run) stop(i int) {
	r.up[i].Store(false)
	pause(r.T, endpointLag)
	must(r.T, r.plane.StopAPIServer(i))
}

func (r *run) startAgain(i int) {
	must(r.T, r.plane.StartAPIServer(r.Context(), i))
	r.up[i].Store(true)
}

// apiServersRestarted restarts one API server after the other. What they cannot
// take is taken by the other one.
func apiServersRestarted(r *run) {
	n := r.size.of(2, 20)
	for i := range n {
		r.disturbed.Store(true)
		r.stop(i % apiServers)
		r.startAgain(i % apiServers)
		pause(r.T, 3*time.Second)
		r.disturbed.Store(false)
		pause(r.T, 2*time.Second)
	}
	r.awaitAll(r.T)
	r.note("%d restarts", n)
}

// contents are what must not change without need: the Secrets and the
// configurations, by name.
func (r *run) contents() map[string]string {
	out := map[string]string{}
	for _, name := range []string{caSecret, servingSecret} {
		s, err := r.secret(r.Context(), name)
		must(r.T, err)
		out[name] = fmt.Sprint(s.ResourceVersion, s.Data)
	}
	configs, err := r.configs(r.Context())
	must(r.T, err)
	for _, c := range configs {
		var bundles bytes.Buffer
		for _, hook := range registration.Webhooks(c) {
			bundles.Write(hook.ClientConfig.CABundle)
		}
		out[string(registration.PhaseOf(c))+" "+c.GetName()] = c.GetResourceVersion() + bundles.String()
	}
	return out
}

// outage takes storage or API servers away and gives them back: no replica may
// end, nothing may be written that has not changed, and all have to be ready
// soon.
func (r *run) outage(breakIt, mend func()) {
	r.limits.unserved, r.limits.quiet = true, true
	pause(r.T, 5*time.Second) // changed configurations get a second write
	before := r.contents()
	pids := r.pids()
	r.disturbed.Store(true)
	r.frozen.Store(true)
	broken := time.Now()
	breakIt()
	mend()
	r.frozen.Store(false)
	repaired := time.Now()
	took := await(r.T, "all to be ready", func() error {
		for _, m := range r.all() {
			if err := m.ready(r.Context()); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		return nil
	})
	pause(r.T, time.Until(repaired.Add(5*time.Second)))
	// Replicas cannot tell an outage from a partition: when their Leases have
	// expired they answer 503 until they have renewed them. API servers repeat such
	// calls until the timeout of the webhook.
	fenced := r.load.failedBetween(broken.Add(20*time.Second), repaired.Add(5*time.Second))
	r.limits.failed += fenced
	r.note("%d failed for want of a Lease", fenced)
	r.disturbed.Store(false)
	r.awaitAll(r.T)
	r.within("the readiness of all replicas", took, 5*time.Second)
	if fmt.Sprint(pids) != fmt.Sprint(r.pids()) {
		r.problem("a replica has ended")
	}
	pause(r.T, 5*time.Second)
	after := r.contents()
	for name, content := range before {
		if after[name] != content {
			r.problem("%s was written", name)
		}
	}
	r.note("ready after %s", took.Round(10*time.Millisecond))
}

func (r *run) pids() []int {
	var out []int
	for _, m := range r.all() {
		if !m.ended() {
			out = append(out, m.running.PID())
		}
	}
	return out
}

// apiServersDown has no API server be there for a minute.
func apiServersDown(r *run) {
	r.outage(func() {
		for i := range apiServers {
			r.stop(i)
		}
		pause(r.T, time.Duration(r.size.of(15, 60))*time.Second)
	}, func() {
		for i := range apiServers {
			r.startAgain(i)
		}
	})
}

// etcdKilled kills the members of etcd one after the other; one of them leads.
func etcdKilled(r *run) {
	r.limits.unserved = true
	for range r.size.of(1, 3) {
		for i := range 3 {
			r.disturbed.Store(true)
			must(r.T, r.plane.KillEtcd(i))
			pause(r.T, 5*time.Second)
			must(r.T, r.plane.StartEtcd(r.Context(), i))
			pause(r.T, 3*time.Second)
			r.disturbed.Store(false)
			pause(r.T, 2*time.Second)
		}
	}
	r.awaitAll(r.T)
}

// etcdWithoutQuorum kills two members of three for two minutes.
func etcdWithoutQuorum(r *run) {
	r.outage(func() {
		must(r.T, r.plane.KillEtcd(0))
		must(r.T, r.plane.KillEtcd(1))
		pause(r.T, time.Duration(r.size.of(30, 120))*time.Second)
	}, func() {
		must(r.T, r.plane.StartEtcd(r.Context(), 0))
		must(r.T, r.plane.StartEtcd(r.Context(), 1))
		await(r.T, "the API servers", func() error {
			for i := range apiServers {
				s := newSender(r.T, r.world)
				q := request{place: 20, server: i, verb: create, name: "bad-first"}
				if o, text := s.attempt(r.Context(), &q, i); o == unserved {
					return fmt.Errorf("%s", text)
				}
			}
			return nil
		})
	})
}

// etcdSlow has etcd stand still again and again, through rotations.
func etcdSlow(r *run) {
	r.limits.unserved = true
	r.disturbed.Store(true)
	pid := r.plane.PIDs()["etcd"]
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			time.Sleep(300*time.Millisecond + time.Duration(rand.IntN(600))*time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	for range r.size.of(1, 5) {
		r.logf("rotated in %s", r.rotate(r.T))
	}
	close(done)
	<-stopped
	r.disturbed.Store(false)
	r.awaitAll(r.T)
}

// stalledWatch has API server 1 hear of no change of a configuration for most
// of the time that it may be behind, through a whole rotation.
func stalledWatch(r *run) {
	overlap := r.size.overlap()
	for _, m := range r.all() {
		m.gateway.prefers.Store(0) // what is about API servers that call, not about managers that read
		m.gateway.relay.Reset()    // their watches too
	}
	before := r.epoch(r.T)
	r.ask(r.T)
	awaitFor(r.T, overlap+timeout, "the rotation to begin", func() error {
		if r.epoch(r.T) == before {
			return fmt.Errorf("still epoch %s", before)
		}
		return nil
	})
	r.awaitSteady(r.T)
	pause(r.T, overlap) // so that the next one begins when it is asked for
	r.stalls.hold()
	began := time.Now()
	before = r.epoch(r.T)
	r.ask(r.T)
	r.awaitRotated(r.T, before)
	r.logf("rotated %s after the stall began", time.Since(began))
	r.ask(r.T) // must wait
	r.deleteSecret(r.T, servingSecret)
	pause(r.T, time.Until(began.Add(overlap*4/5)))
	if r.knows(1) {
		r.problem("API server 1 was not behind")
	}
	r.stalls.release()
	r.note("stalled for %s", (overlap * 4 / 5).Round(time.Second))
	pause(r.T, overlap/5)
	awaitFor(r.T, overlap+timeout, "the next rotation", func() error { return r.steady(r.Context()) })
}

// overlap is the --trust-overlap of a scenario that needs a real one.
func (s size) overlap() time.Duration { return time.Duration(s.of(1, 15)) * time.Minute }

// knows reports whether an API server has the present bundle where its
// admission looks.
func (r *run) knows(i int) bool {
	serving, err := r.secret(r.Context(), servingSecret)
	must(r.T, err)
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	var list admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := r.admins[i].List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		r.logf("API server %d: %v", i, err)
		return false
	}
	return slices.ContainsFunc(list.Items, func(c admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		return len(c.Webhooks) > 0 && bytes.Equal(c.Webhooks[0].ClientConfig.CABundle, serving.Data["ca.crt"])
	})
}
