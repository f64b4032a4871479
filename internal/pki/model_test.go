package pki

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The model runs leaders, replicas and API servers step by step in an order
// drawn at random, with everything that can go wrong in between, and states
// after each step what must hold. The machine and what replicas do are the real
// ones; only the cluster around them is modelled.

const (
	modelReplicas   = 3
	modelLeaders    = 2 // of which one is stale
	modelAPIServers = 3
	modelConfigs    = 2
)

var periods = Periods{Trial: 15 * time.Second, Fallback: 15 * time.Minute}

// version is one version of a configuration.
type version struct {
	bundle Bundle
	path   string
	epoch  int64
	at     time.Time
}

type modelReplica struct {
	state    ServingState
	leased   bool   // has written its Lease
	reported int64  // the last reported epoch
	callable bool   // has read the Secret after that
	sight    string // the last read state
}

type modelLeader struct {
	memory   Authority
	external bool          // uses an external issuer
	skew     time.Duration // of its clock
	bundle   []byte        // that it saw published
	since    time.Time     // when it saw that first
	pending  *decision
}

// decision is a write that a leader is about to make.
type decision struct {
	action      Action
	state       State
	ca, serving int      // versions that were read
	known       int64    // the highest epoch at that time
	memory      []string // the paths that the leader served then
}

// machine is the tested function; mutants replace it.
type machine func(State, Observed, Names, Config) Action

type model struct {
	t         testing.TB
	r         *mathrand.Rand
	next      machine
	now       time.Time
	log       []string
	real      bool // verify with crypto/x509 instead of comparing issuers
	lag       time.Duration
	faultless bool // injects no faults

	source              *modelSource // nil: Ostiary issues leaves
	stored              State
	caGone, servingGone bool
	ca, serving         int // versions
	history             []Authority
	request             string

	configs  [modelConfigs][]version
	seen     [modelAPIServers][modelConfigs]int
	replicas [modelReplicas]modelReplica
	leaders  [modelLeaders]modelLeader
	verified map[string]error
	writes   int
	failure  string
}

func newModel(t testing.TB, seed uint64, next machine) *model {
	m := &model{
		t:        t,
		r:        mathrand.New(mathrand.NewPCG(seed, 1)),
		next:     next,
		now:      epoch0,
		verified: map[string]error{},
		lag:      config().Overlap - ClockTolerance,
	}
	m.begin()
	return m
}

// begin sets up a steady cluster after the first installation.
func (m *model) begin() {
	s, _ := State{}, 0
	for range 2 {
		o := steadyObserved(s, m.now)
		var err error
		if s, err = Apply(s, Next(s, o, names, config()), o, names, config(), rand.Reader); err != nil {
			m.t.Fatal(err)
		}
	}
	m.stored, m.history = s, []Authority{s.CA}
	for i := range m.configs {
		m.configs[i] = []version{{bundle: s.Serving.Bundle, path: s.Serving.Path(), epoch: s.CA.Epoch, at: m.now}}
	}
	for i := range m.replicas {
		m.startReplica(i)
		m.report(i)
		m.confirm(i)
	}
}

func (m *model) logf(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) fail(format string, args ...any) {
	if m.failure == "" {
		m.failure = fmt.Sprintf(format, args...)
	}
}

func (m *model) state() State {
	s := m.stored
	if m.caGone {
		s.CA = Authority{}
	}
	if m.servingGone {
		s.Serving = Serving{}
	}
	return s
}

func (m *model) live() []Bundle {
	var out []Bundle
	for i := range m.configs {
		out = append(out, m.configs[i][len(m.configs[i])-1].bundle)
	}
	return out
}

// Replicas.

func (m *model) startReplica(i int) {
	m.logf("replica %d starts", i)
	m.replicas[i] = modelReplica{reported: m.replicas[i].reported, leased: m.replicas[i].leased}
	m.read(i)
}

func (m *model) read(i int) {
	r := &m.replicas[i]
	sight := fmt.Sprint(m.serving, len(m.configs[0]), len(m.configs[1]), r.state.fellBack, r.state.previous.IsZero())
	if m.servingGone || sight == r.sight {
		return
	}
	r.sight = sight
	held, err := r.state.Accept(m.stored.Serving, m.live(), names, clocksAt(m.now), m.now)
	r.state = held
	m.logf("replica %d reads epoch %d (bundle %d): %v", i, m.stored.Serving.Epoch, m.stored.Serving.TrustEpoch, err)
}

func (m *model) report(i int) {
	r := &m.replicas[i]
	r.leased, r.reported = true, r.state.Committed()
	m.logf("replica %d reports %d", i, r.reported)
}

func (m *model) confirm(i int) {
	if !m.replicas[i].leased {
		return
	}
	m.read(i)
	m.replicas[i].callable = m.replicas[i].state.Check(m.live(), names, config(), clocksAt(m.now)) == nil
}

// Leaders. Leader i is in the process of replica i.

func (m *model) observe(i int) Observed {
	l := &m.leaders[i]
	s := m.state()
	o := Observed{
		Clocks:  Clocks{Local: m.now.Add(l.skew), Server: m.now.Add(time.Duration(m.r.IntN(3)-1) * time.Minute)},
		Request: m.request,
	}
	if l.external {
		o.External = &m.source.external
	}
	o.Published.Current = true
	for _, c := range m.configs {
		v := c[len(c)-1]
		o.Published.Roots = append(o.Published.Roots, v.bundle.roots...)
		o.Published.Epoch = max(o.Published.Epoch, v.epoch)
		o.Published.Current = o.Published.Current && v.bundle.Equal(s.Serving.Bundle) && v.path == s.Serving.Path()
		if !slices.Contains(o.Published.Paths, v.path) {
			o.Published.Paths = append(o.Published.Paths, v.path)
		}
	}
	if stored := append(s.Serving.Bundle.PEM(), s.Serving.Path()...); !o.Published.Current || !bytes.Equal(stored, l.bundle) {
		l.bundle, l.since = stored, m.now
		if !o.Published.Current {
			l.bundle = nil
		}
	}
	if o.Published.Current {
		o.Published.For = m.now.Sub(l.since)
	}
	o.Memory = State{CA: l.memory, Serving: m.replicas[i].state.Serving}
	l.memory = s.Remembered(o)
	o.Memory.CA = l.memory
	for j := range m.replicas {
		if m.replicas[j].leased {
			o.Replicas = append(o.Replicas, Replica{Name: fmt.Sprint(j), Epoch: m.replicas[j].reported})
		}
	}
	return o
}

func (m *model) decide(i int) {
	s, o := m.state(), m.observe(i)
	a := m.next(s, o, names, config())
	m.leaders[i].pending = nil
	if a.Kind == Wait {
		m.logf("leader %d waits: %s", i, a.Reason)
		return
	}
	next, err := Apply(s, a, o, names, config(), rand.Reader)
	if err != nil {
		m.fail("leader %d cannot apply %+v: %v", i, a, err)
		return
	}
	m.logf("leader %d decides %s: %s", i, a.Kind, a.Reason)
	if (a.Kind == Retire || a.CrossCertified) && m.leaders[i].skew.Abs() > 10*time.Minute {
		m.fail("I7: %s by a clock that is off by %s", a.Kind, m.leaders[i].skew)
	}
	m.leaders[i].pending = &decision{
		action:  a,
		state:   next,
		ca:      m.ca,
		serving: m.serving,
		known:   m.knownEpoch(),
		memory:  o.Memory.Serving.Paths,
	}
}

// write is a compare-and-swap of one Secret.
func (m *model) write(i int) {
	d := m.leaders[i].pending
	m.leaders[i].pending = nil
	if d == nil {
		return
	}
	if d.action.Kind.OfCA() {
		if d.ca != m.ca {
			m.logf("leader %d: conflict", i)
			return
		}
		m.putCA(i, d)
		return
	}
	if d.serving != m.serving {
		m.logf("leader %d: conflict", i)
		return
	}
	m.putServing(i, d)
}

func (m *model) putCA(i int, d *decision) {
	ca := d.state.CA
	m.logf("leader %d writes the CA of epoch %d, previous %t", i, ca.Epoch, ca.Previous != nil)
	if !m.caGone && equalAuthority(ca, m.stored.CA) {
		m.fail("I6: a write of the CA that changes nothing")
	}
	if d.action.Kind == CreateCA && ca.Epoch <= d.known || d.action.Kind == RestoreCA && ca.Epoch < d.known {
		m.fail("I4: the epoch goes from %d to %d", d.known, ca.Epoch)
	}
	m.stored.CA, m.caGone = ca, false
	m.history = append(m.history, ca)
	m.leaders[i].memory = ca
	m.ca++
	m.writes++
}

// knownEpoch is the highest epoch in use. A CA that was lost before it signed
// anything does not count.
func (m *model) knownEpoch() int64 {
	var known int64
	for _, c := range m.configs {
		known = max(known, c[len(c)-1].epoch)
	}
	for i := range m.replicas {
		if m.replicas[i].callable {
			known = max(known, m.replicas[i].reported)
		}
	}
	return known
}

func equalAuthority(a, b Authority) bool {
	return a.Epoch == b.Epoch && sameCertificate(a.Pair.Certificate(), b.Pair.Certificate()) && sameCertificate(a.Previous, b.Previous) &&
		sameCertificate(a.CrossCertificate, b.CrossCertificate) && a.PreviousRemoved.Equal(b.PreviousRemoved) &&
		a.LastRequest == b.LastRequest && a.Path == b.Path
}

func (m *model) putServing(i int, d *decision) {
	next := d.state.Serving
	m.logf("leader %d writes the leaf of epoch %d and %d roots of epoch %d", i, next.Epoch, len(next.Bundle.roots), next.TrustEpoch)
	old := m.stored.Serving
	if !m.servingGone && sameCertificate(old.Pair.Certificate(), next.Pair.Certificate()) &&
		old.Bundle.Equal(next.Bundle) && old.Epoch == next.Epoch && old.TrustEpoch == next.TrustEpoch &&
		slices.Equal(old.Paths, next.Paths) {
		m.fail("I6: a write of the leaf that changes nothing")
	}
	if n := len(next.Bundle.roots); n < 1 || n > 2 {
		m.fail("I6: %d roots in the bundle", n)
	}
	if n := len(next.Paths); n < 1 || n > maxPaths {
		m.fail("I6: %d paths", n)
	}
	for _, root := range next.Bundle.roots {
		if !slices.ContainsFunc(m.history, func(a Authority) bool { return a.Pair.Certificate().Equal(root) }) {
			m.fail("I3: a root is published whose key was never stored")
		}
	}
	if m.servingGone && len(d.memory) == 0 {
		m.forgetPaths()
	}
	m.stored.Serving, m.servingGone = next, false
	m.serving++
	m.writes++
}

// register applies what the process of a leader knows to one configuration.
func (m *model) register(i, j int) {
	own := m.replicas[i].state.Serving
	have := m.configs[j][len(m.configs[j])-1]
	if len(own.Bundle.roots) == 0 || own.TrustEpoch < have.epoch ||
		own.TrustEpoch == have.epoch && own.Bundle.Equal(have.bundle) && own.Path() == have.path {
		return
	}
	m.configs[j] = append(m.configs[j], version{bundle: own.Bundle, path: own.Path(), epoch: own.TrustEpoch, at: m.now})
	m.logf("leader %d registers %d roots of epoch %d in configuration %d", i, len(own.Bundle.roots), own.TrustEpoch, j)
}

// Time.

func (m *model) advance(d time.Duration) {
	m.now = m.now.Add(d)
	m.logf("%s pass", d)
	for i := range m.seen {
		for j := range m.seen[i] {
			// What was replaced longer ago than an API server can be behind is
			// not in use any more.
			for at := m.seen[i][j]; at+1 < len(m.configs[j]) && m.now.Sub(m.configs[j][at+1].at) >= m.lag; at++ {
				m.seen[i][j] = at + 1
			}
		}
	}
	for i := range m.replicas {
		m.replicas[i].state = m.replicas[i].state.Tick(m.now, periods)
	}
}

// step is one event. Faults that leave nothing to serve are not among them:
// nothing can be promised then.
func (m *model) step() {
	// A rotation takes some 100 steps: issuers that are quicker see none end.
	if m.source != nil && m.r.IntN(50) == 0 {
		m.source.change(m)
		return
	}
	i, j := m.r.IntN(modelReplicas), m.r.IntN(modelConfigs)
	l := m.r.IntN(modelLeaders)
	switch p := m.r.IntN(200); {
	case p < 40:
		m.decide(l)
	case p < 80:
		m.write(l)
	case p < 105:
		m.read(i)
	case p < 125:
		m.report(i)
	case p < 135:
		m.confirm(i)
	case p < 155:
		m.register(l, j)
	case p < 165:
		a := m.r.IntN(modelAPIServers)
		m.seen[a][j] += m.r.IntN(len(m.configs[j]) - m.seen[a][j])
	case p < 185:
		m.advance(time.Duration(m.r.Int64N(int64([]time.Duration{time.Second, 20 * time.Second, 10 * time.Minute}[m.r.IntN(3)]))))
	case !m.faultless:
		m.fault(p, i, l)
	}
}

func (m *model) fault(p, i, l int) {
	switch p {
	case 185, 186, 187:
		m.request = fmt.Sprint("rotation ", m.r.Uint32())
		m.logf("a rotation is requested")
	case 188, 189:
		if !m.others(l) || m.source != nil && !m.restorable(true) {
			return
		}
		m.logf("leader %d crashes", l)
		m.leaders[l] = modelLeader{external: m.leaders[l].external}
		m.startReplica(l)
	case 190:
		if m.others(i) && (m.source == nil || m.restorable(true)) {
			m.startReplica(i)
		}
	case 191:
		m.leaders[l].skew = []time.Duration{40 * day, -2 * time.Hour, 3650 * day, 0, 4 * time.Minute}[m.r.IntN(5)]
		m.logf("the clock of leader %d is off by %s", l, m.leaders[l].skew)
	case 192:
		if m.source != nil && m.source.mixed {
			return // see modelSource
		}
		m.logf("the CA is deleted")
		m.caGone = true
		m.ca++
	case 193:
		if !m.others(-1) || m.source != nil && !m.restorable(false) {
			return
		}
		m.logf("the leaf is deleted")
		m.servingGone = true
		m.serving++
	case 194:
		a := m.history[m.r.IntN(len(m.history))]
		m.logf("the CA of epoch %d is restored", a.Epoch)
		m.stored.CA, m.caGone = a, false
		m.ca++
	case 195:
		if !m.others(-1) || m.source != nil && !m.restorable(false) {
			return
		}
		m.stored.Serving.Pair = Pair{}
		m.logf("the leaf is damaged")
		m.serving++
	case 196:
		c := m.configs[0]
		c[len(c)-1].epoch += 2
		m.logf("configuration 0 is edited to epoch %d", c[len(c)-1].epoch)
	case 197, 198:
		m.logf("an API server refuses replica %d", i)
		m.replicas[i].state = m.replicas[i].state.FallBack(m.now)
	}
}

// others reports whether another replica serves what is about to be lost.
func (m *model) others(i int) bool {
	for j := range m.replicas {
		if j != i && m.replicas[j].callable && !m.replicas[j].state.Presented().IsZero() {
			return true
		}
	}
	return false
}

// restorable reports whether the serving certificate is stored or the next leader
// can restore it, because no replica has a later one. Otherwise its root is
// unknown.
func (m *model) restorable(stored bool) bool {
	if stored {
		return !m.servingGone && !m.stored.Serving.Pair.IsZero()
	}
	latest := slices.MaxFunc(m.replicas[:],
		func(a, b modelReplica) int { return cmp.Compare(a.state.Serving.Epoch, b.state.Serving.Epoch) }).state.Serving.Epoch
	return !slices.ContainsFunc(m.replicas[:modelLeaders], func(r modelReplica) bool {
		return r.state.Presented().IsZero() || r.state.Serving.Epoch < latest
	})
}

// check checks the invariants of every reachable state.
func (m *model) check() {
	for i := range m.replicas {
		r := &m.replicas[i]
		if !r.callable {
			continue
		}
		m.checkPaths(i)
		for _, pair := range []Pair{r.state.Serving.Pair, r.state.previous} {
			for a := range m.seen {
				for j, at := range m.seen[a] {
					if err := m.verify(pair, m.configs[j][at].bundle); err != nil {
						m.fail("I1: replica %d presents %s, which API server %d refuses for configuration %d (version %d of %d): %v",
							i, pair, a, j, at, len(m.configs[j]), err)
					}
				}
			}
		}
	}
}

// forgetPaths ends the guarantee for API servers that are behind: the paths of
// earlier configurations were stored in the lost Secret, and the leader that
// writes it again has not read it.
func (m *model) forgetPaths() {
	for _, c := range m.configs {
		for at := range c[:len(c)-1] {
			c[at].path = ""
		}
	}
}

// checkPaths checks that replicas accept the paths of all API servers that are not
// behind for longer than a path is accepted.
func (m *model) checkPaths(i int) {
	for a := range m.seen {
		for j, at := range m.seen[a] {
			if path := m.configs[j][at].path; path != "" && m.lag < config().Overlap && !m.replicas[i].state.Serving.Accepts(path) {
				m.fail("I8: replica %d does not accept path %s, which API server %d calls for configuration %d (version %d of %d): %v",
					i, path, a, j, at, len(m.configs[j]), m.replicas[i].state.Serving.Paths)
			}
		}
	}
}

func (m *model) verify(pair Pair, bundle Bundle) error {
	if pair.IsZero() {
		return nil
	}
	key := Serial(pair.Certificate()) + string(bundle.PEM())
	err, known := m.verified[key]
	if known {
		return err
	}
	if !slices.ContainsFunc(bundle.roots, pair.leadsTo) { // all of the verification that can differ between states
		err = fmt.Errorf("no root for %s", pair)
	}
	if m.real {
		got := Verify(pair.chain, bundle, names, m.now)
		if (got == nil) != (err == nil) {
			m.t.Fatalf("crypto/x509 says %v, the model %v", got, err)
		}
		err = got
	}
	m.verified[key] = err
	return err
}

// heal ends all faults and runs every participant until nothing is left to do.
// That this terminates is part of the guarantee.
func (m *model) heal() {
	for i := range m.leaders {
		m.leaders[i].skew = 0
	}
	if m.source != nil {
		m.source.heal(m)
	}
	for range 120 {
		for range 4 {
			m.decide(0)
			m.check()
			m.write(0)
			m.check()
		}
		for i := range m.replicas {
			m.read(i)
			m.report(i)
			m.check()
			m.confirm(i)
		}
		for j := range m.configs {
			m.register(0, j)
			m.check()
		}
		if m.failure != "" || m.healed() {
			return
		}
		m.advance(time.Minute)
	}
	m.fail("it does not come to rest")
}

func (m *model) healed() bool {
	s := m.state()
	a := Next(s, m.observe(0), names, config())
	if a.Kind != Wait || a.Reason != "" || s.Phase() != PhaseSteady || s.Serving.Path() != s.CA.Path {
		return false
	}
	if external := m.leaders[0].external; external && !s.Serving.Pair.Certificate().Equal(m.source.external.Pair.Certificate()) ||
		!external && (!s.CA.Pair.HasKey() || m.request != "" && s.CA.LastRequest != m.request) {
		return false
	}
	return !slices.ContainsFunc(m.replicas[:], func(r modelReplica) bool {
		return !r.callable || r.state.FallenBack() || r.state.Serving.Epoch != s.CA.Epoch
	})
}

// walk runs the model and returns the violated invariant.
func (m *model) walk(steps int) string {
	if m.run(steps) == "" {
		m.heal()
	}
	return m.failure
}

// run is a walk that ends with faults still present.
func (m *model) run(steps int) string {
	for range steps {
		m.step()
		m.check()
		if m.failure != "" {
			break
		}
	}
	return m.failure
}

func TestModel(t *testing.T) {
	seed, walks := mathrand.Uint64(), modelWalks(t, 15)
	var writes, rotations int64
	for i := range walks {
		m := newModel(t, seed+uint64(i), Next)
		m.real = i%5 == 0
		if failure := m.walk(250); failure != "" {
			t.Fatalf("seed %d: %s\n%s", seed+uint64(i), failure, strings.Join(m.log, "\n"))
		}
		writes += int64(m.writes)
		rotations += m.stored.CA.Epoch - 1
	}
	t.Logf("%d walks, %d writes, %d rotations", walks, writes, rotations)
	if rotations < int64(walks) {
		t.Errorf("%d rotations in %d walks: the model covers too few", rotations, walks)
	}
}

// modelWalks is the number of runs, unless an environment variable overrides it.
func modelWalks(t *testing.T, walks int) int {
	if s := os.Getenv("OSTIARY_MODEL_WALKS"); s != "" {
		var err error
		if walks, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return walks
}

// TestModelBehindForever has API servers that never receive a new bundle. A
// rotation with a cross-certificate and later renewals must work for them.
func TestModelBehindForever(t *testing.T) {
	m := newModel(t, 1, Next)
	m.lag, m.real = 100*365*day, true
	m.request = "please"
	m.heal()
	for range 2 {
		m.advance(61 * day)
		m.heal()
	}
	if m.failure != "" || m.stored.CA.Epoch != 2 {
		t.Fatalf("epoch %d: %s\n%s", m.stored.CA.Epoch, m.failure, strings.Join(m.log, "\n"))
	}
}

// TestModelCatches breaks the state machine in plausible ways. The model must
// detect each.
func TestModelCatches(t *testing.T) {
	mutants := map[string]struct {
		machine machine
		want    string
	}{
		"publish and switch at once": {func(s State, o Observed, n Names, c Config) Action {
			o.Published = Publication{Roots: o.Published.Roots, Epoch: o.Published.Epoch, Current: true, For: c.Overlap}
			a := Next(s, o, n, c)
			a.CrossCertified = false
			return a
		}, "I1"},
		"no cross-certificate": {func(s State, o Observed, n Names, c Config) Action {
			o.Published.For = c.Overlap
			a := Next(s, o, n, c)
			a.CrossCertified = false
			return a
		}, "I1"},
		"retire without asking": {func(s State, o Observed, n Names, c Config) Action {
			for i := range o.Replicas {
				o.Replicas[i].Epoch = s.CA.Epoch
			}
			return Next(s, o, n, c)
		}, "I1"},
		"one rotation after the other": {func(s State, o Observed, n Names, c Config) Action {
			s.CA.PreviousRemoved = time.Time{}
			return Next(s, o, n, c)
		}, "I1"},
		"forget the published roots": {func(s State, o Observed, n Names, c Config) Action {
			o.Published.Epoch, o.Memory = 0, State{}
			for i := range o.Replicas {
				o.Replicas[i].Epoch = min(o.Replicas[i].Epoch, s.CA.Epoch)
			}
			s.Serving.Epoch, s.Serving.TrustEpoch = min(s.Serving.Epoch, s.CA.Epoch), min(s.Serving.TrustEpoch, s.CA.Epoch)
			return Next(s, o, n, c)
		}, "I"},
		"trust one clock": {func(s State, o Observed, n Names, c Config) Action {
			o.Clocks.Local = o.Clocks.Server
			return Next(s, o, n, c)
		}, "I7"},
		"write again and again": {func(s State, o Observed, n Names, c Config) Action {
			if a := Next(s, o, n, c); a.Kind != Wait || s.CA.Pair.IsZero() || s.Serving.Pair.IsZero() {
				return a
			}
			return Action{Kind: PublishBundle}
		}, "I6"},
	}
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				if failure := newModel(t, seed, mutant.machine).run(1000); failure != "" {
					if !strings.HasPrefix(failure, mutant.want) {
						continue
					}
					t.Logf("caught in walk %d: %s", seed+1, failure)
					return
				}
			}
			t.Error("the model does not notice")
		})
	}
}

// TestModelSeeds repeats walks that have found a fault.
func TestModelSeeds(t *testing.T) {
	for name, seed := range map[string]uint64{
		"a stale leader issues a certificate of a CA that was replaced": 12013086343849823650,
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, seed, Next)
			if failure := m.walk(250); failure != "" {
				t.Fatalf("%s\n%s", failure, strings.Join(m.log, "\n"))
			}
		})
	}
}
