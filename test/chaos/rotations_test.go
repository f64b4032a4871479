package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// leafRenewals has the leaf be renewed by its age, every few seconds.
func leafRenewals(r *run) {
	before, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	want := r.size.of(3, 50)
	serials := map[string]bool{}
	awaitFor(r.T, time.Duration(want)*time.Minute, "renewals", func() error {
		s, err := r.secret(r.Context(), servingSecret)
		if err != nil {
			return err
		}
		if serials[string(s.Data["tls.crt"])] = true; len(serials) <= want {
			return fmt.Errorf("%d of %d", len(serials)-1, want)
		}
		return nil
	})
	after, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	if after.ResourceVersion != before.ResourceVersion {
		r.problem("the CA's Secret was written")
	}
	r.note("%d renewals", len(serials)-1)
}

func caRotations(r *run) {
	var longest time.Duration
	n := r.size.of(3, 20)
	for i := range n {
		took := r.rotate(r.T)
		longest = max(longest, took)
		r.logf("rotation %d took %s", i+1, took)
	}
	r.within("a rotation", longest, time.Minute)
	r.note("%d rotations, the longest %s", n, longest.Round(time.Millisecond))
}

// caKeyLost takes the CA away together with the memory of the leader: the next
// one has to make another, without a cross-certificate.
func caKeyLost(r *run) {
	for range r.size.of(1, 5) {
		before := r.epoch(r.T)
		leader := r.leader(r.T)
		r.kill(leader)
		r.deleteSecret(r.T, caSecret)
		leader.restart(r.T)
		r.awaitRotated(r.T, before)
		r.awaitAll(r.T)
	}
}

// crashPoint is a write of a rotation.
type crashPoint struct {
	name  string
	after bool
	nth   int // of those that match
	path  func(string) bool
}

func secretPath(name string) func(string) bool {
	return func(path string) bool { return strings.HasSuffix(path, "/secrets/"+name) }
}

func crashPoints(s size) []crashPoint {
	var out []crashPoint
	for _, after := range []bool{false, true} {
		out = append(out,
			crashPoint{"CA minted", after, 1, secretPath(caSecret)},
			crashPoint{"leaf issued", after, 1, secretPath(servingSecret)},
			crashPoint{"first configuration with both CAs", after, 1, ofConfiguration},
			crashPoint{"25th configuration with both CAs", after, 25, ofConfiguration},
			crashPoint{"50th configuration with both CAs", after, 50, ofConfiguration},
			crashPoint{"CA retired", after, 2, secretPath(caSecret)},
			crashPoint{"bundle reduced", after, 2, secretPath(servingSecret)},
			crashPoint{"first configuration with the new CA", after, configurations + 2, ofConfiguration},
			crashPoint{"25th configuration with the new CA", after, configurations + 26, ofConfiguration},
			crashPoint{"last configuration with the new CA", after, 2 * configurations, ofConfiguration})
	}
	if s == short {
		return []crashPoint{out[1], out[10]} // before the leaf is issued, and after the CA is minted
	}
	return out
}

// leaderKilled kills the leader at each write of a rotation, before the API
// server gets it, or after, before the leader hears of that.
func leaderKilled(r *run) {
	var longest time.Duration
	points := crashPoints(r.size)
	for _, p := range points {
		failed := r.load.failures()
		before := r.epoch(r.T)
		leader := r.leader(r.T)
		seen := 0
		trap := &trap{
			after: p.after,
			at: func(method, path string) bool {
				if method != http.MethodGet && p.path(path) {
					seen++
				}
				return seen == p.nth
			},
			spring: func() { r.kill(leader) },
		}
		leader.gateway.set(trap)
		r.ask(r.T)
		select {
		case <-trap.sprung:
		case <-time.After(timeout):
			r.Fatalf("the rotation does not get to %q: %d writes", p.name, seen)
		}
		killed := time.Now()
		held, _ := r.holder(r.Context())
		leader.restart(r.T)
		took := await(r.T, "another leader", func() error {
			holder, err := r.holder(r.Context())
			if err == nil && holder == held {
				err = fmt.Errorf("%s still leads", holder)
			}
			return err
		})
		longest = max(longest, took)
		r.awaitRotated(r.T, before)
		r.awaitAll(r.T)
		r.logf("%s, after %t: %d failed, led again after %s, rotated after %s", p.name, p.after, r.load.failures()-failed,
			took, time.Since(killed))
	}
	r.within("another leader", longest, 20*time.Second)
	r.note("%d points, without a leader for %s at most", len(points), longest.Round(100*time.Millisecond))
}

// leaderPaused stops the leader for a minute in the middle of a rotation, and
// lets it go on when another has taken over.
func leaderPaused(r *run) {
	points := crashPoints(full)[10:]
	for _, p := range points[:r.size.of(1, len(points))] {
		before := r.epoch(r.T)
		leader := r.leader(r.T)
		seen := 0
		trap := &trap{after: p.after, spring: leader.pause, at: func(_, path string) bool {
			if p.path(path) {
				seen++
			}
			return seen == p.nth
		}}
		leader.gateway.set(trap)
		r.ask(r.T)
		select {
		case <-trap.sprung:
		case <-time.After(timeout):
			r.Fatalf("the rotation does not get to %q: %d writes", p.name, seen)
		}
		at := time.Now()
		held, _ := r.holder(r.Context())
		await(r.T, "another leader", func() error {
			holder, err := r.holder(r.Context())
			if err == nil && holder == held {
				err = fmt.Errorf("%s still leads", holder)
			}
			return err
		})
		pause(r.T, time.Until(at.Add(time.Duration(r.size.of(30, 60))*time.Second)))
		failed := r.load.failures()
		leader.resume()
		r.awaitRotated(r.T, before)
		r.awaitAll(r.T)
		// Until the Service has dropped it and what waits for it has timed out,
		// requests that a stopped replica has taken fail.
		r.limits.failed += r.load.failedBetween(at, at.Add(20*time.Second))
		r.logf("%s: %d failed while it was stopped, %d after", p.name, r.load.failedBetween(at, at.Add(20*time.Second)), r.load.failures()-failed)
		if n := r.load.failures() - failed; n > 0 {
			r.problem("%d requests failed after the leader that was stopped went on, at %q", n, p.name)
		}
	}
}
