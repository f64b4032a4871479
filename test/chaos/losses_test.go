package chaos

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// secretsDeleted deletes either Secret, and both, again and again.
func secretsDeleted(r *run) {
	ca, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	var longest time.Duration
	for range r.size.of(2, 10) {
		for _, names := range [][]string{{servingSecret}, {caSecret}, {caSecret, servingSecret}} {
			for _, name := range names {
				r.deleteSecret(r.T, name)
			}
			took := await(r.T, "the Secrets to be put back", func() error { return r.steady(r.Context()) })
			longest = max(longest, took)
			pause(r.T, time.Duration(r.size.of(2, 10))*time.Second) // writes are limited
		}
	}
	after, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	if !bytes.Equal(ca.Data["tls.crt"], after.Data["tls.crt"]) {
		r.problem("the CA has changed, although the leader knew it")
	}
	r.within("a Secret that was deleted", longest, 5*time.Second)
	r.note("put back within %s", longest.Round(time.Millisecond))
}

// corruption damages a field of a Secret.
type corruption struct {
	name   string
	damage func(field string, s *corev1.Secret)
}

func corruptions(r *run) []corruption {
	set := func(value []byte) func(string, *corev1.Secret) {
		return func(field string, s *corev1.Secret) { s.Data[field] = value }
	}
	weak, weakKey := rsaPair(r)
	foreign, foreignKey := foreignPair(r, time.Now(), time.Hour)
	expired, _ := foreignPair(r, time.Now().Add(-48*time.Hour), time.Hour)
	pick := func(cert, key []byte) func(string, *corev1.Secret) {
		return func(field string, s *corev1.Secret) {
			if s.Data[field] = cert; strings.HasSuffix(field, ".key") {
				s.Data[field] = key
			}
		}
	}
	return []corruption{
		{"truncated", func(field string, s *corev1.Secret) { s.Data[field] = s.Data[field][:len(s.Data[field])/2] }},
		{"emptied", set(nil)},
		{"swapped", func(_ string, s *corev1.Secret) {
			s.Data["tls.crt"], s.Data["tls.key"] = s.Data["tls.key"], s.Data["tls.crt"]
		}},
		{"of another authority", pick(foreign, foreignKey)},
		{"expired", set(expired)},
		{"RSA of 1024 bits", pick(weak, weakKey)},
		{"900 KiB of junk", set(bytes.Repeat([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 900<<10/58))},
	}
}

// secretsCorrupted damages each field of either Secret in every way.
func secretsCorrupted(r *run) {
	before, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	cpu := r.cpu()
	fields := map[string][]string{
		caSecret:      {"tls.crt", "tls.key", "epoch"},
		servingSecret: {"tls.crt", "tls.key", "ca.crt", "epoch", "trust-epoch"},
	}
	n, longest := 0, time.Duration(0)
	for _, c := range corruptions(r) {
		for _, name := range []string{caSecret, servingSecret} {
			for i, field := range fields[name] {
				if r.size == short && (n+i)%5 != 0 {
					continue
				}
				n++
				r.change(r.T, name, func(s *corev1.Secret) { c.damage(field, s) })
				took := await(r.T, fmt.Sprintf("%s to be mended, whose %s is %s", name, field, c.name), func() error { return r.steady(r.Context()) })
				if longest = max(longest, took); took > 5*time.Second {
					r.logf("%s, %s, %s: %s", c.name, name, field, took)
				}
				pause(r.T, time.Duration(r.size.of(1, 6))*time.Second) // writes are limited
			}
		}
	}
	after, err := r.secret(r.Context(), caSecret)
	must(r.T, err)
	if !bytes.Equal(before.Data["tls.crt"], after.Data["tls.crt"]) {
		r.problem("the CA has changed, although the leader knew it")
	}
	r.note("%d corruptions, mended within %s, %s of CPU", n, longest.Round(time.Millisecond), (r.cpu() - cpu).Round(time.Millisecond))
}

func rsaPair(r *run) (cert, key []byte) {
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	must(r.T, err)
	return certificate(r, k.Public(), k, time.Now(), time.Hour), pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k))
}

func foreignPair(r *run, from time.Time, lifetime time.Duration) (cert, key []byte) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(r.T, err)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	must(r.T, err)
	return certificate(r, k.Public(), k, from, lifetime), pemOf("PRIVATE KEY", der)
}

func certificate(r *run, public, private any, from time.Time, lifetime time.Duration) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "foreign"},
		NotBefore: from, NotAfter: from.Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames: []string{serviceName + "." + systemNamespace + ".svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	must(r.T, err)
	return pemOf("CERTIFICATE", der)
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// killAll ends every replica, as the loss of their machines would.
func (r *run) killAll() {
	for _, m := range r.all() {
		m.kill()
		<-m.running.Done()
	}
}

// longStop has what expires in a long stop be expired.
func (r *run) longStop() {
	must(r.T, r.admin().DeleteAllOf(r.Context(), &coordinationv1.Lease{}, client.InNamespace(systemNamespace)))
}

// reborn starts one replica after all have been killed and something has been
// done, and tells how long after its start the first requests are answered.
// What fails before that is not counted; the rest is as ever.
func (r *run) reborn(limit time.Duration, meanwhile func()) {
	r.limits.distrust = true
	began := time.Now()
	r.killAll()
	meanwhile()
	members := r.all()
	up := time.Now()
	members[0].start(r.T)
	s := newSender(r.T, r.world)
	var answered time.Duration
	await(r.T, "an answer", func() error {
		for server := range apiServers {
			q := request{place: 20, server: server, verb: create, name: "bad-first"}
			if o, text := s.attempt(r.Context(), &q, server); o != denied {
				return fmt.Errorf("%s: %s", o, text)
			}
		}
		answered = time.Since(up)
		return nil
	})
	r.within("the first good answer", answered, limit)
	// Every API server has to hear of every configuration.
	await(r.T, "the configurations", func() error { return r.steady(r.Context()) })
	for _, m := range members[1:] {
		m.start(r.T)
	}
	r.awaitAll(r.T)
	well := time.Now()
	r.note("first answer %s after a replica is started", answered.Round(100*time.Millisecond))
	pause(r.T, 6*time.Second)                                                // a webhook may take 5 to fail
	r.limits.failed += r.load.failedBetween(began.Add(-5*time.Second), well) // those under way at the kill, too
}

// everythingLost loses both Secrets and every memory of them.
func everythingLost(r *run) {
	r.reborn(15*time.Second, func() {
		r.deleteSecret(r.T, caSecret)
		r.deleteSecret(r.T, servingSecret)
		r.longStop()
	})
}

// oldCARestored puts the CA's Secret back as it was one and two epochs ago.
func oldCARestored(r *run) {
	for _, back := range []int{1, 2} {
		old, err := r.secret(r.Context(), caSecret)
		must(r.T, err)
		for range back {
			r.rotate(r.T)
		}
		before := r.epoch(r.T)
		r.put(r.T, old)
		took := await(r.T, "the epoch to recover", func() error {
			if epoch := r.epoch(r.T); len(epoch) < len(before) || epoch < before && len(epoch) == len(before) {
				return fmt.Errorf("epoch %s, it was %s", epoch, before)
			}
			return r.steady(r.Context())
		})
		r.note("%d back: recovered after %s", back, took.Round(100*time.Millisecond))
	}
}

// bundlesEmptied has another client empty the bundles, once a second. API servers
// may keep to what was edited after it has been repaired, until it is announced
// once more, which waits for the fight to pause.
func bundlesEmptied(r *run) {
	r.limits.distrust = true // of replicas that were allowed to
	values := [][]byte{{}, []byte("\n"), nil}
	foreign, _ := foreignPair(r, time.Now(), time.Hour)
	values[2] = foreign
	from := r.mark()
	var edits []edit
	var together []time.Duration
	var mended, spoilt [][2]time.Time // from when to when bundles were wrong, and requests may fail
	fight := time.Now()
	for i := range r.size.of(10, 300) {
		began := time.Now()
		edits = append(edits, r.spoil(values[i%len(values)])...)
		together = append(together, await(r.T, "the bundles to be mended", func() error { return r.steady(r.Context()) }))
		pause(r.T, 300*time.Millisecond) // API servers hear of it a moment later
		mended = append(mended, [2]time.Time{began, time.Now()})
		// Whoever comes back within half a second of a repair is backed off from.
		pause(r.T, max(400*time.Millisecond, time.Until(began.Add(time.Second))))
		if i%10 == 9 {
			pause(r.T, 4*time.Second) // it is announced meanwhile
			spoilt = append(spoilt, [2]time.Time{fight, time.Now()})
			pause(r.T, 3*time.Second)
			fight = time.Now()
		}
	}
	late, all := r.load.failedOutside(mended), r.load.count()
	if len(late) > all/1000 {
		r.problem("%d of %d requests failed while all bundles were right", len(late), all)
		r.evidence = late
	}
	if outside := r.load.failedOutside(spoilt); len(outside) > 0 {
		r.problem("%d requests failed although all bundles had been right for seconds", len(outside))
		r.evidence = outside
	}
	r.limits.failed = r.load.failures()
	heard, err := r.hear(from)
	must(r.T, err)
	heard.writes = slices.DeleteFunc(heard.writes, func(e auditv1.Event) bool {
		return e.ObjectRef == nil || !strings.HasSuffix(e.ObjectRef.Resource, "webhookconfigurations")
	})
	every, each := percentile(together, 99), percentile(r.repairTimes(edits, heard.writes), 99)
	r.within("the mending of all bundles (p99)", every, 2*time.Second)
	r.within("the mending of a bundle (p99)", each, 2*time.Second)
	if len(heard.writes) >= 2*len(edits) {
		r.problem("%d writes after %d edits", len(heard.writes), len(edits))
	}
	r.note("%d edits, %d writes, all 50 mended within %s (p99), each within %s", len(edits), len(heard.writes),
		every.Round(time.Millisecond), each.Round(time.Millisecond))
	r.note("%d failed while all were right", len(late))
}

// edit is an edit of a configuration by another client.
type edit struct {
	name string
	sent time.Time
}

// spoil has every configuration have a bundle.
func (r *run) spoil(bundle []byte) []edit {
	configs, err := r.configs(r.Context())
	must(r.T, err)
	edits := make([]edit, len(configs))
	workqueue.ParallelizeUntil(r.Context(), 8, len(configs), func(i int) {
		setBundle(configs[i], bundle)
		sent := time.Now()
		if r.admin().Update(r.Context(), configs[i]) == nil {
			edits[i] = edit{configs[i].GetName(), sent}
		}
	})
	return slices.DeleteFunc(edits, func(e edit) bool { return e.name == "" })
}

// repairTimes returns how long after each edit the next write of Ostiary's was answered.
func (r *run) repairTimes(edits []edit, writes []auditv1.Event) []time.Duration {
	answered := map[string][]time.Time{}
	for _, w := range writes {
		if w.ResponseStatus != nil && w.ResponseStatus.Code == http.StatusOK {
			answered[w.ObjectRef.Name] = append(answered[w.ObjectRef.Name], w.StageTimestamp.Time)
		}
	}
	var took []time.Duration
	for _, e := range edits {
		times := slices.DeleteFunc(slices.Clone(answered[e.name]), func(at time.Time) bool { return at.Before(e.sent) })
		if len(times) == 0 {
			r.problem("configuration %s was edited at %s, and not mended after it", e.name, e.sent.Format(time.TimeOnly))
			continue
		}
		took = append(took, slices.MinFunc(times, time.Time.Compare).Sub(e.sent))
	}
	return took
}
