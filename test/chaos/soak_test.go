package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ostiary/ostiary/test/controlplane"
)

// soak has everything happen that requests may not notice, or of which they may
// notice only what was under way, in random order. The first replica lives
// through it, and must not grow.
func soak(r *run) {
	survivor := r.all()[0]
	events := []struct {
		name string
		do   func()
	}{
		{"a rotation", func() { r.rotate(r.T) }},
		{"the leaf is lost", func() { r.deleteSecret(r.T, servingSecret) }},
		{"the CA's Secret is lost", func() { r.deleteSecret(r.T, caSecret) }},
		{"a replica is killed", func() {
			m := r.all()[1]
			r.kill(m)
			m.restart(r.T)
		}},
		{"a replica is replaced", func() {
			m := r.all()[1]
			r.replace(m)
			m.remove(r.T)
		}},
		{"connections are reset", func() {
			r.kills = append(r.kills, time.Now())
			r.service.Reset()
			for _, m := range r.all() {
				m.gateway.relay.Reset()
			}
		}},
		{"an API server is restarted", func() {
			r.disturbed.Store(true)
			i := rand.IntN(apiServers)
			r.stop(i)
			r.startAgain(i)
			pause(r.T, 3*time.Second)
			r.disturbed.Store(false)
		}},
	}
	began, before := time.Now(), survivor.growth(r)
	var n int
	for end := began.Add(time.Duration(r.size.of(2, 240)) * time.Minute); time.Now().Before(end) || n < len(events); n++ {
		event := events[n%len(events)]
		if n >= len(events) {
			event = events[rand.IntN(len(events))]
		}
		r.logf("%s", event.name)
		event.do()
		await(r.T, "everything to be well after "+event.name, func() error { return r.steady(r.Context()) })
		r.awaitAll(r.T)
		if n == len(events)-1 {
			before = survivor.growth(r) // everything has happened once
		}
		pause(r.T, 2*time.Second)
	}
	after := survivor.growth(r)
	if after.goroutines > before.goroutines*3/2+20 || after.heap > before.heap*3/2+20<<20 {
		r.problem("a replica grows: from %s to %s", before, after)
	}
	r.note("%d events, a replica went from %s to %s", n, before, after)
}

// growth is what must not grow.
type growth struct{ goroutines, heap int }

func (g growth) String() string {
	return fmt.Sprintf("%d goroutines and %d MiB", g.goroutines, g.heap>>20)
}

// growth is the least of several looks: what garbage is left is chance.
func (m *member) growth(r *run) growth {
	var least growth
	for i := range 5 {
		pause(r.T, time.Second)
		text, err := m.get(r.Context(), m.metrics, "/metrics")
		must(r.T, err)
		now := growth{metric(r, text, "go_goroutines"), metric(r, text, "go_memstats_heap_alloc_bytes")}
		if i == 0 {
			least = now
		}
		least = growth{min(least.goroutines, now.goroutines), min(least.heap, now.heap)}
	}
	return least
}

func metric(r *run, text, name string) int {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(r.T, err)
			return int(f)
		}
	}
	r.Fatalf("there is no metric %s", name)
	return 0
}

// versions updates from an older version and back, with a rotation by whoever
// leads at every step in between.
func versions(r *run) {
	old := r.buildOlder()
	now := r.program
	for range r.size.of(1, 3) {
		for _, program := range []string{old, now} {
			r.mu.Lock()
			r.current = program
			r.mu.Unlock()
			for _, m := range r.all() {
				r.replace(m)
				m.remove(r.T)
				r.logf("rotated in %s", r.rotate(r.T))
			}
		}
	}
	r.awaitAll(r.T)
	r.note("beside %s", *older)
}

// buildOlder builds the manager of an older revision.
func (r *run) buildOlder() string {
	dir, program := filepath.Join(r.dir, "older"), filepath.Join(r.dir, "ostiary-older")
	must(r.T, os.MkdirAll(dir, 0o700))
	const extract = `git -C ../.. archive "$0" | tar -x -C "$1"`
	if out, err := exec.CommandContext(r.Context(), "sh", "-c", extract, *older, dir).CombinedOutput(); err != nil {
		r.Fatalf("extracting %s: %v: %s", *older, err, out)
	}
	must(r.T, controlplane.BuildManager(r.Context(), dir, program, "-buildvcs=false"))
	return program
}
