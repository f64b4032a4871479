package chaos

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// smallQuota is what etcd may store where a scenario fills it. What is there from
// the start takes less than a tenth of it.
const smallQuota = 96 << 20

// etcdFull fills etcd until it refuses every write. API servers go on reading,
// deleting and asking webhooks. Readiness cannot be written, so endpoints stay
// as they are. What is lost meanwhile is put back when there is room again.
func etcdFull(r *run) {
	r.limits.unserved, r.limits.quiet = true, true
	pause(r.T, 5*time.Second) // changed configurations get a second write
	before := r.contents()
	delete(before, servingSecret)
	r.disturbed.Store(true) // etcd is busy, and then stands still to be defragmented
	pids := r.pids()
	r.fill()
	r.frozen.Store(true)
	full := time.Now()
	r.deleteSecret(r.T, servingSecret)
	pause(r.T, time.Duration(r.size.of(20, 120))*time.Second)
	if err := r.admin().Create(r.Context(), filler("probe", 1)); !isFull(err) {
		r.problem("etcd was not full: %v", err)
	}
	r.logf("full for %s, %d failed", time.Since(full), r.load.failures())
	r.makeRoom()
	r.frozen.Store(false)
	r.disturbed.Store(false)
	took := await(r.T, "the Secret that was lost", func() error { return r.steady(r.Context()) })
	r.awaitAll(r.T)
	r.within("the Secret that was lost", took, 5*time.Second)
	if fmt.Sprint(pids) != fmt.Sprint(r.pids()) {
		r.problem("a replica has ended")
	}
	after := r.contents()
	for name, content := range before {
		if after[name] != content {
			r.problem("%s was written", name)
		}
	}
	r.note("full for %s, mended %s after", time.Since(full).Round(time.Second), took.Round(10*time.Millisecond))
	pause(r.T, 5*time.Second)
}

const fillers = "chaos-filler"

func filler(name string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: map[string]string{fillers: "yes"}},
		Data:       map[string]string{"junk": strings.Repeat("x", size)},
	}
}

func isFull(err error) bool {
	return err != nil && strings.Contains(err.Error(), "database space exceeded")
}

// fill writes until etcd takes no more.
func (r *run) fill() {
	for round := 0; ; round++ {
		errs := make([]error, 8)
		workqueue.ParallelizeUntil(r.Context(), 4, len(errs), func(i int) {
			errs[i] = r.admin().Create(r.Context(), filler(fmt.Sprintf("filler-%d-%d", round, i), 900<<10))
		})
		err := errors.Join(errs...)
		if isFull(err) {
			return
		}
		must(r.T, err)
		if round > smallQuota>>20 {
			r.Fatal("etcd does not get full")
		}
	}
}

// makeRoom does what an administrator does: deletes, compacts, defragments, and
// ends the alarm.
func (r *run) makeRoom() {
	must(r.T, r.admin().DeleteAllOf(r.Context(), &corev1.ConfigMap{}, client.InNamespace(metav1.NamespaceDefault), client.HasLabels{fillers}))
	var status struct {
		Header struct {
			Revision string `json:"revision"`
			Member   string `json:"member_id"`
		} `json:"header"`
	}
	ask := func(path string, question any) {
		must(r.T, r.plane.AskEtcd(r.Context(), 0, path, question, &status))
	}
	ask("/v3/maintenance/status", map[string]any{})
	revision, err := strconv.ParseInt(status.Header.Revision, 10, 64)
	must(r.T, err)
	ask("/v3/kv/compaction", map[string]any{"revision": revision, "physical": true})
	ask("/v3/maintenance/defragment", map[string]any{})
	ask("/v3/maintenance/alarm", map[string]any{"action": "DEACTIVATE", "memberID": status.Header.Member, "alarm": "NOSPACE"})
}
