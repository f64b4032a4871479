package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/controllers/certificates"
	"github.com/ostiary/ostiary/test/controlplane/cptest"
)

const caSecret = "ostiary-ca"

// replicaGroup is several managers behind one address, instead of the shared one.
type replicaGroup struct {
	*cluster
	members []*process
	flags   []string

	mu   sync.Mutex
	keys map[string]bool // lines of every private key, and every secret path, that there was
}

// newReplicaGroup starts replicas whose certificates may be rotated every few seconds.
func (c *cluster) newReplicaGroup(t *testing.T, size int) *replicaGroup {
	t.Helper()
	if c.shared != nil {
		c.end(c.shared)
		c.shared = nil
	}
	c.releaseLease(t)
	var addresses []string
	for range size {
		addresses = append(addresses, cptest.FreeAddress())
	}
	service := balance(t, cptest.FreeAddress())
	for _, address := range addresses {
		service.Add(address)
	}
	url := service.Address()
	f := &replicaGroup{
		cluster: c,
		keys:    map[string]bool{},
		flags:   []string{"--webhook-url=https://" + url, "--trust-overlap=5s", "--log-level=debug"},
	}
	f.watchKeys(t)
	for _, address := range addresses {
		f.members = append(f.members, c.another(t, append(f.flags, "--webhook-address="+address)...))
	}
	for i, m := range f.members {
		m.webhook = addresses[i]
	}
	c.awaitLeader(t)
	return f
}

// watchKeys collects the private keys, to look for them where they must not be.
func (f *replicaGroup) watchKeys(t *testing.T) {
	w, err := f.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(systemNamespace))
	must(t, err)
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			if s, ok := event.Object.(*corev1.Secret); ok {
				f.remember(s)
			}
		}
	}()
}

func (f *replicaGroup) remember(s *corev1.Secret) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(string(s.Data["tls.key"])) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			f.keys[line] = true
		}
	}
	for _, field := range []string{"path", "paths"} {
		for path := range strings.FieldsSeq(string(s.Data[field])) {
			f.keys[path] = true
		}
	}
}

// rotate asks for a rotation and waits until it has ended.
func (f *replicaGroup) rotate(t *testing.T) {
	t.Helper()
	before := f.epoch(t)
	f.ask(t)
	f.awaitRotated(t, before)
}

func (f *replicaGroup) ask(t *testing.T) {
	t.Helper()
	await(t).Eventually(func() error {
		s, err := f.secret(t, caSecret)
		if err != nil {
			return err
		}
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[certificates.RotateAnnotation] = time.Now().Format(time.RFC3339Nano)
		return f.Update(t.Context(), s)
	}).Should(Succeed())
}

func (f *replicaGroup) epoch(t *testing.T) string {
	t.Helper()
	s, err := f.secret(t, caSecret)
	must(t, err)
	return string(s.Data["epoch"])
}

func (f *replicaGroup) awaitRotated(t *testing.T, before string) {
	t.Helper()
	await(t).Eventually(func() error {
		ca, err := f.secret(t, caSecret)
		if err != nil {
			return err
		}
		serving, err := f.secret(t, servingSecret)
		if err != nil {
			return err
		}
		if string(ca.Data["epoch"]) == before || ca.Data["previous.crt"] != nil || !bytes.Equal(serving.Data["epoch"], ca.Data["epoch"]) {
			return fmt.Errorf("epoch %s, before %s, previous %t, serving %s", ca.Data["epoch"], before,
				ca.Data["previous.crt"] != nil, serving.Data["epoch"])
		}
		return nil
	}).Should(Succeed())
}

// leader is the member that leads.
func (f *replicaGroup) leader(t *testing.T) *process {
	t.Helper()
	var leader *process
	await(t).Eventually(func() error {
		holder := f.awaitLeader(t)
		for _, m := range f.members {
			if log, err := m.output(); err != nil || strings.Contains(log, holder) {
				leader = m
				return err
			}
		}
		return fmt.Errorf("no replica is %s", holder)
	}).Should(Succeed())
	return leader
}

// crash kills a member and starts it again, as a kubelet would.
func (f *replicaGroup) crash(t *testing.T, m *process) {
	t.Helper()
	m.kill()
	again := f.startAs(t, m.replica, m.webhook, f.flags...)
	f.explain(t, again)
	t.Cleanup(again.kill)
	f.members[slices.Index(f.members, m)] = again
}

// traffic sends requests with known answers until it is stopped.
type traffic struct {
	sent, failed, wrong atomic.Int64
	mu                  sync.Mutex
	examples            []string
	stop                func()
}

func (f *replicaGroup) traffic(t *testing.T, namespace, policy string) *traffic {
	ctx, cancel := context.WithCancel(t.Context())
	l := &traffic{}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for ctx.Err() == nil {
				l.check(ctx, policy, []string{good, bad}[i%2], f.probe(ctx, namespace, []string{good, bad}[i%2]))
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	l.stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(l.stop)
	return l
}

func (l *traffic) check(ctx context.Context, policy, verdict string, err error) {
	if ctx.Err() != nil {
		return
	}
	l.sent.Add(1)
	switch {
	case err == nil && verdict == good, verdict == bad && deniedBy(err, policy):
		return
	case err == nil:
		l.wrong.Add(1)
		err = errors.New("allowed")
	default:
		l.failed.Add(1)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.examples = append(l.examples, verdict+": "+err.Error())
}

// report stops the load and states how many requests may have failed.
func (l *traffic) report(t *testing.T, maxFailed int64) {
	t.Helper()
	l.stop()
	t.Logf("%d requests, %d failed, %d wrong", l.sent.Load(), l.failed.Load(), l.wrong.Load())
	if l.sent.Load() < 100 || l.failed.Load() > maxFailed || l.wrong.Load() > 0 {
		t.Errorf("want at least 100 requests, at most %d failed and none wrong: %q", maxFailed, l.examples[:min(5, len(l.examples))])
	}
	for _, e := range l.examples {
		if strings.Contains(e, "x509") || strings.Contains(e, "certificate") {
			t.Errorf("an API server did not trust a replica: %s", e)
		}
	}
}

// dial is an API server that trusts a bundle and opens a connection.
func (f *replicaGroup) dial(m *process, bundle []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	conn, err := tls.Dial("tcp", m.webhook, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	return conn.Close()
}

// A rotation of the CA fails no request, on whatever replica, and every
// connection is accepted under the bundle of before it as well.
func TestRotationFailsNoRequest(t *testing.T) {
	c := install(t)
	f := c.newReplicaGroup(t, 3)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("rotated", namespace))
	c.awaitDenied(t, namespace, "rotated")
	l := f.traffic(t, namespace, "rotated")
	rotations := 3
	if testing.Short() {
		rotations = 1
	}
	for range rotations {
		serving, err := f.secret(t, servingSecret)
		must(t, err)
		before, called := serving.Data["ca.crt"], *c.carrier(t, "rotated").Webhooks[0].ClientConfig.URL
		f.rotate(t)
		await(t).Eventually(func() string { return *c.carrier(t, "rotated").Webhooks[0].ClientConfig.URL }).ShouldNot(Equal(called))
		f.awaitRefused(t, called)
		for _, m := range f.members {
			must(t, f.dial(m, before))
			must(t, f.dial(m, c.carrier(t, "rotated").Webhooks[0].ClientConfig.CABundle))
		}
	}
	must(t, c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: servingSecret}}))
	await(t).Eventually(func() error { _, err := f.secret(t, servingSecret); return err }).Should(Succeed())
	l.report(t, 0)
	f.wantNoKeys(t)
	await(t).Eventually(func() float64 {
		return f.leader(t).series(t, `ostiary_certificate_rotation_phase{phase="Steady"}`)
	}).Should(Equal(1.0))
	await(t).Eventually(func() float64 { return f.leader(t).series(t, "ostiary_certificate_stale_trust") }).Should(BeZero())
}

// The death of the leader after any write of a rotation fails what is in flight
// at most, and the next leader goes on from there.
func TestLeaderDiesDuringRotation(t *testing.T) {
	c := install(t)
	f := c.newReplicaGroup(t, 3)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("orphaned", namespace))
	c.awaitDenied(t, namespace, "orphaned")
	points := []struct {
		name   string
		secret string
		at     func(*corev1.Secret) bool
	}{
		{"minted", caSecret, func(s *corev1.Secret) bool { return s.Data["previous.crt"] != nil }},
		{"leaf issued", servingSecret, func(s *corev1.Secret) bool { return strings.Count(string(s.Data["ca.crt"]), "BEGIN") == 2 }},
		{"retired", caSecret, func(s *corev1.Secret) bool { return s.Data["previous.crt"] == nil && s.Data["previous-removed"] != nil }},
		{"bundle reduced", servingSecret, func(s *corev1.Secret) bool { return strings.Count(string(s.Data["ca.crt"]), "BEGIN") == 1 }},
	}
	f.rotate(t) // so that there is a time of settlement
	whole := t  // whose end is that of the managers
	for _, point := range points {
		t.Run(point.name, func(t *testing.T) {
			l := f.traffic(t, namespace, "orphaned")
			before := f.epoch(t)
			leader := f.leader(t)
			w, err := f.Watch(t.Context(), &corev1.SecretList{}, client.InNamespace(systemNamespace))
			must(t, err)
			defer w.Stop()
			f.ask(t)
			f.awaitWrite(t, w, point.secret, before, point.at)
			f.crash(whole, leader)
			f.releaseLease(t) // so as not to wait until the lease of the dead runs out
			f.awaitRotated(t, before)
			for _, m := range f.members {
				m.awaitReady(t)
				must(t, f.dial(m, c.carrier(t, "orphaned").Webhooks[0].ClientConfig.CABundle))
			}
			l.report(t, 16)
		})
	}
	f.wantNoKeys(t)
}

// awaitWrite returns as soon as a Secret of a later epoch is at a point.
func (f *replicaGroup) awaitWrite(t *testing.T, w watch.Interface, name, before string, at func(*corev1.Secret) bool) {
	t.Helper()
	timeout := time.After(deadline)
	for {
		select {
		case <-timeout:
			t.Fatal("the rotation does not get there")
		case event := <-w.ResultChan():
			s, ok := event.Object.(*corev1.Secret)
			if ok && s.Name == name && event.Type == watch.Modified && string(s.Data["epoch"]) != before && at(s) {
				return
			}
		}
	}
}

// Secrets that are lost or damaged while all replicas live are repaired, and
// no request fails.
func TestSecretsLostUnderLoad(t *testing.T) {
	c := install(t)
	f := c.newReplicaGroup(t, 2)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("robbed", namespace))
	c.awaitDenied(t, namespace, "robbed")
	before, err := f.secret(t, caSecret)
	must(t, err)
	junk := func(field string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[field] = []byte("junk") }
	}
	tests := map[string]struct {
		names []string
		edit  func(*corev1.Secret) // nil deletes
	}{
		"the CA":        {names: []string{caSecret}},
		"the leaf":      {names: []string{servingSecret}},
		"both":          {names: []string{caSecret, servingSecret}},
		"key of the CA": {names: []string{caSecret}, edit: junk("tls.key")},
		"certificate":   {names: []string{servingSecret}, edit: junk("tls.crt")},
		"bundle":        {names: []string{servingSecret}, edit: junk("ca.crt")},
		"epochs":        {names: []string{caSecret, servingSecret}, edit: junk("epoch")},
		"nothing left of it": {
			names: []string{caSecret, servingSecret},
			edit:  func(s *corev1.Secret) { s.Data = map[string][]byte{"tls.crt": {}, "tls.key": {}} },
		},
	}
	l := f.traffic(t, namespace, "robbed")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			versions := map[string]string{}
			for _, secret := range tc.names {
				must(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
					s, err := f.secret(t, secret)
					if err != nil {
						return err
					}
					if tc.edit == nil {
						err = c.Delete(t.Context(), s)
					} else {
						tc.edit(s)
						err = c.Update(t.Context(), s)
					}
					versions[secret] = s.ResourceVersion
					return err
				}))
			}
			await(t).Eventually(func() error {
				for secret, version := range versions {
					s, err := f.secret(t, secret)
					if err != nil {
						return err
					}
					if s.ResourceVersion == version || !bytes.Equal(s.Data["epoch"], before.Data["epoch"]) ||
						!strings.HasPrefix(string(s.Data["tls.key"]), "-----BEGIN") {
						return fmt.Errorf("secret %s has not been repaired", secret)
					}
				}
				return nil
			}).Should(Succeed())
		})
	}
	l.report(t, 0)
	after, err := f.secret(t, caSecret)
	must(t, err)
	if !bytes.Equal(after.Data["tls.crt"], before.Data["tls.crt"]) {
		t.Error("the CA has changed, although the leader knew it")
	}
	f.wantNoKeys(t)
}

// wantNoKeys looks for private keys and secret paths everywhere but in the Secrets.
func (f *replicaGroup) wantNoKeys(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.keys) == 0 {
		t.Fatal("no key has been seen: the test proves nothing")
	}
	for where, text := range f.everythingSaid(t) {
		for line := range f.keys {
			if strings.Contains(text, line) {
				t.Errorf("%s holds a line of a private key or a secret path", where)
			}
		}
	}
}

// everythingSaid is what people can read of the managers.
func (f *replicaGroup) everythingSaid(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, m := range f.members {
		log, err := m.output()
		must(t, err)
		_, metrics, err := m.get(t.Context(), m.metrics, "/metrics")
		must(t, err)
		_, health, err := m.get(t.Context(), m.health, "/readyz?verbose")
		must(t, err)
		said["the log of "+m.replica], said["the metrics of "+m.replica], said["the health of "+m.replica] = log, metrics, health
	}
	events := &eventsv1.EventList{}
	for name, list := range map[string]client.ObjectList{"events": events, "policies": &v1alpha1.WebhookPolicyList{}} {
		must(t, f.List(t.Context(), list))
		text, err := json.Marshal(list)
		must(t, err)
		said[name] = string(text)
	}
	if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind == "Secret" }) {
		t.Error("no event tells of a Secret")
	}
	return said
}

// With nothing left, neither in the Secrets nor in any memory, everything is
// made anew, and the configurations follow.
func TestEverythingLostAtBoot(t *testing.T) {
	c := install(t)
	c.manager(t)
	namespace := c.namespace(t, nil)
	c.enforce(t, newPolicy("reborn", namespace))
	c.awaitDenied(t, namespace, "reborn")
	before, err := c.secret(t, caSecret)
	must(t, err)
	c.shared.kill()
	for _, name := range []string{caSecret, servingSecret} {
		must(t, c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}))
	}
	began := time.Now()
	c.manager(t)
	c.awaitDenied(t, namespace, "reborn")
	t.Logf("the first good answer came %s after the start", time.Since(began).Round(100*time.Millisecond))
	after, err := c.secret(t, caSecret)
	must(t, err)
	was, err := strconv.Atoi(string(before.Data["epoch"]))
	must(t, err)
	is, err := strconv.Atoi(string(after.Data["epoch"]))
	must(t, err)
	if bytes.Equal(before.Data["tls.crt"], after.Data["tls.crt"]) || is <= was {
		t.Errorf("epoch %s after %s; want a new CA of a later epoch", after.Data["epoch"], before.Data["epoch"])
	}
}
