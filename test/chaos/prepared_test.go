package chaos

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/internal/pki"
	"github.com/ostiary/ostiary/internal/registration"
)

func serverNames() pki.Names {
	return pki.Names{DNS: []string{serviceName + "." + systemNamespace + ".svc"}}
}

// material makes a CA and a leaf as Ostiary made them at some time.
func (r *run) material(at time.Time, config pki.Config, epoch int64) pki.State {
	config = config.WithDefaults()
	seen := pki.Observed{Clocks: pki.Clocks{Local: at, Server: at}, Published: pki.Publication{Current: true}}
	var s pki.State
	for range 10 {
		a := pki.Next(s, seen, serverNames(), config)
		if a.Kind == pki.Wait {
			break
		}
		var err error
		s, err = pki.Apply(s, a, seen, serverNames(), config, rand.Reader)
		must(r.T, err)
		s.CA.Epoch, s.Serving.Epoch, s.Serving.TrustEpoch = epoch, epoch, epoch
	}
	if s.Serving.Pair.IsZero() {
		r.Fatal("there is no leaf")
	}
	return s
}

// store has the Secrets and all configurations be of some material.
func (r *run) store(s pki.State) {
	epoch := []byte(strconv.FormatInt(s.CA.Epoch, 10))
	r.put(r.T, secretOf(r, caSecret, s.CA.Pair, map[string][]byte{"epoch": epoch, "path": []byte(s.CA.Path)}))
	r.put(r.T, secretOf(r, servingSecret, s.Serving.Pair,
		map[string][]byte{"epoch": epoch, "trust-epoch": epoch, "ca.crt": s.Serving.Bundle.PEM(),
			"paths": []byte(strings.Join(s.Serving.Paths, "\n")),
		}))
	r.publish(s.Serving.Bundle.PEM(), string(epoch))
}

func secretOf(r *run, name string, pair pki.Pair, more map[string][]byte) *corev1.Secret {
	key, err := pair.KeyPEM()
	must(r.T, err)
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}, Type: corev1.SecretTypeTLS, Data: more}
	s.Data["tls.crt"], s.Data["tls.key"] = pair.CertificatePEM(), key
	return s
}

// publish writes a bundle into every configuration.
func (r *run) publish(bundle []byte, epoch string) {
	configs, err := r.configs(r.Context())
	must(r.T, err)
	for _, c := range configs {
		must(r.T, retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := r.admin().Get(r.Context(), client.ObjectKeyFromObject(c), c); err != nil {
				return err
			}
			setBundle(c, bundle)
			annotations := c.GetAnnotations()
			annotations[registration.AnnotationEpoch] = epoch
			c.SetAnnotations(annotations)
			return r.admin().Update(r.Context(), c)
		}))
	}
}

func setBundle(c registration.Configuration, bundle []byte) {
	switch c := c.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.CABundle = bytes.Clone(bundle)
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.CABundle = bytes.Clone(bundle)
		}
	}
}

func (r *run) nextEpoch() int64 {
	epoch, err := strconv.ParseInt(r.epoch(r.T), 10, 64)
	must(r.T, err)
	return epoch + 1
}

// leafExpired is a start after half a year without a replica.
func leafExpired(r *run) {
	epoch := r.nextEpoch()
	r.reborn(10*time.Second, func() {
		r.store(r.material(time.Now().Add(-182*24*time.Hour), pki.Config{}, epoch))
		r.longStop()
	})
	if now := r.epoch(r.T); now != strconv.FormatInt(epoch, 10) {
		r.problem("the CA, which was good, is now of epoch %s, it was %d", now, epoch)
	}
}

// caExpired is a start after four years without a replica.
func caExpired(r *run) {
	epoch := r.nextEpoch()
	r.reborn(15*time.Second, func() {
		r.store(r.material(time.Now().Add(-4*365*24*time.Hour), pki.Config{}, epoch))
		r.longStop()
	})
}

// brokenRotation replaces the CA as one would who does not know better: the new
// bundle and the new leaf at once, without a cross-certificate. No replica leads meanwhile. It
// shows that the harness sees what it is there to see.
func brokenRotation(r *run) {
	r.limits.mustFail, r.limits.distrust = true, true
	r.usurp()
	for i := range 2 {
		next := r.material(time.Now(), pki.Config{}, r.nextEpoch())
		r.logf("broken rotation %d", i+1)
		r.store(next)
		pause(r.T, 3*time.Second)
	}
	must(r.T, client.IgnoreNotFound(r.admin().Delete(r.Context(), leaderLease())))
	r.awaitSteady(r.T)
	r.awaitAll(r.T)
}

// usurp leaves no leader: another holder has the lease, for as long as that
// takes.
func (r *run) usurp() {
	leader := r.leader(r.T)
	holder, err := r.holder(r.Context())
	must(r.T, err)
	must(r.T, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease := &coordinationv1.Lease{}
		if err := r.admin().Get(r.Context(), client.ObjectKey{Namespace: systemNamespace, Name: "ostiary-leader"}, lease); err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To("chaos"), ptr.To[int32](600)
		lease.Spec.RenewTime, lease.Spec.AcquireTime = &now, &now
		return r.admin().Update(r.Context(), lease)
	}))
	await(r.T, "the leader to resign", func() error {
		if !strings.Contains(leader.log(), `"no longer leading","identity":"`+holder) {
			return fmt.Errorf("%s leads", leader.name)
		}
		return nil
	})
}

// cpu is what the replicas have used of it so far.
func (r *run) cpu() time.Duration {
	var sum time.Duration
	for _, m := range r.all() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.running.PID()))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		for _, field := range fields[11:13] {
			ticks, _ := strconv.Atoi(field)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}
