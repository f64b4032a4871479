package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// connectionsReset breaks off every connection between API servers and replicas,
// and between managers and API servers, again and again, as a firewall that
// forgets them would. Requests that are under way fail; others must not.
func connectionsReset(r *run) {
	n := r.size.of(5, 60)
	for range n {
		r.kills = append(r.kills, time.Now())
		r.service.Reset()
		for _, m := range r.all() {
			m.gateway.relay.Reset()
		}
		pause(r.T, 2*time.Second)
	}
	r.awaitAll(r.T)
	r.note("%d resets", n)
}

// throttled gives every replica a twentieth of a CPU, as a limit of 50m does.
// Not everything can be answered, but nothing may be answered wrongly, and no
// replica may end or grow beyond its memory.
func throttled(r *run) {
	const period, share = 100 * time.Millisecond, 5 * time.Millisecond
	began := time.Now()
	for time.Since(began) < time.Duration(r.size.of(15, 60))*time.Second {
		for _, m := range r.all() {
			m.resume()
		}
		time.Sleep(share)
		for _, m := range r.all() {
			m.pause()
		}
		time.Sleep(period - share)
	}
	for _, m := range r.all() {
		m.resume()
	}
	r.awaitAll(r.T)
	pause(r.T, 5*time.Second) // what was under way
	over := time.Now()
	r.limits.failed = r.load.failedBetween(began, over)
	var most int
	for _, m := range r.all() {
		most = max(most, m.memory(r))
	}
	r.note("%d failed meanwhile, %d MiB of memory at most", r.limits.failed, most>>10)
	if most>>10 > 512 {
		r.problem("a replica took %d MiB", most>>10)
	}
	pause(r.T, 5*time.Second)
}

// memory is the most that a replica has taken, in KiB.
func (m *member) memory(r *run) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.running.PID()))
	must(r.T, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	must(r.T, err)
	return n
}
