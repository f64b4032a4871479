package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ostiary/ostiary/test/controlplane"
)

// buildWrongClock builds the manager with a package time whose wall clock can be
// set wrong from outside, as a whole: every package of the process sees it. The
// monotonic clock goes on as it does when an administrator sets the time. The
// manager itself is unchanged.
func (w *world) buildWrongClock(ctx context.Context) (string, error) {
	program := filepath.Join(w.dir, "ostiary-wrong-clock")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("finding Go's own packages: %w", err)
	}
	own := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(own, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "	sec, nsec, mono := runtimeNow()\n	if mono == 0 {\n		return Time{uint64(nsec), sec + unixToInternal, Local}"
	before, after, found := strings.Cut(string(source), now)
	if !found {
		return "", errors.New("time.Now is not written as it was: look at it and mend this")
	}
	wrong := before + strings.Replace(now, "runtimeNow()\n", "runtimeNow()\n	sec += wrongBy.Load()\n", 1) + after
	testdata, err := filepath.Abs("testdata/wrong.go.txt")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(w.dir, "time.go")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(own, "time.go"):  changed,
		filepath.Join(own, "wrong.go"): testdata,
	}})
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.dir, "overlay.json")
	if err := errors.Join(os.WriteFile(changed, []byte(wrong), 0o600), os.WriteFile(file, overlay, 0o600)); err != nil {
		return "", err
	}
	return program, controlplane.BuildManager(ctx, "../..", program, "-overlay="+file)
}

func (m *member) clock() string { return m.world.dir + "/" + m.name + ".clock" }

// jump has the clock of a replica be wrong.
func (r *run) jump(m *member, by time.Duration) {
	next := m.clock() + ".next"
	must(r.T, os.WriteFile(next, fmt.Appendf(nil, "%+d", int64(by.Seconds())), 0o600))
	must(r.T, os.Rename(next, m.clock()))
	r.logf("the clock of %s is wrong by %s", m.name, by)
}

const aDay = 24 * time.Hour

// clocksWrong has the clock of a replica, and then of the leader, jump, and back
// again.
func clocksWrong(r *run) {
	for _, by := range []time.Duration{-2 * time.Hour, 40 * aDay, 10 * 365 * aDay} {
		leader := r.leader(r.T)
		for _, m := range r.all() {
			if m != leader {
				r.jump(m, by)
				break
			}
		}
		pause(r.T, 10*time.Second)
		r.awaitAll(r.T)
		r.rotate(r.T)
		r.right()

		leader = r.leader(r.T)
		r.jump(leader, by)
		pause(r.T, 5*time.Second)
		before := r.epoch(r.T)
		r.ask(r.T)
		r.deleteSecret(r.T, servingSecret) // a renewal is never put off
		pause(r.T, 15*time.Second)
		r.awaitAll(r.T)
		if holder := r.leader(r.T); holder != leader {
			r.problem("%s does not lead any more because its clock is wrong by %s", leader.name, by)
		}
		if r.epoch(r.T) != before {
			r.problem("a rotation began while the leader's clock was wrong by %s", by)
		}
		r.right()
		r.awaitRotated(r.T, before)
	}
	// And the other way round: the API servers are wrong, as far as can be seen.
	before := r.epoch(r.T)
	for _, m := range r.all() {
		m.gateway.skew.Store(int64(-6 * time.Minute))
	}
	pause(r.T, 10*time.Second)
	r.ask(r.T)
	pause(r.T, 10*time.Second)
	if r.epoch(r.T) != before {
		r.problem("a rotation began while API servers were 6 minutes behind")
	}
	for _, m := range r.all() {
		m.gateway.skew.Store(0)
	}
	r.awaitRotated(r.T, before)
	r.awaitAll(r.T)
}

// right sets all clocks right.
func (r *run) right() {
	for _, m := range r.all() {
		r.jump(m, 0)
	}
	pause(r.T, 2*time.Second)
	r.awaitAll(r.T)
}
