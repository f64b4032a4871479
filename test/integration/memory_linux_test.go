package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	installedLimit = 512 << 20 // of the container, as in config/manager
	installedGo    = "450MiB"
)

// cgroup is a group of processes with a hard limit of memory, of either version.
type cgroup struct{ dir, peak string }

// limited makes a group for a test, which is skipped where it may not.
func limited(t *testing.T, limit int64) cgroup {
	t.Helper()
	if os.Getenv("OSTIARY_RACE") != "" {
		t.Skip("the race detector takes several times the memory")
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		g := cgroup{dir: filepath.Join("/sys/fs/cgroup", fields[2]), peak: "memory.peak"}
		file := "memory.max"
		switch fields[1] {
		case "memory":
			g = cgroup{dir: filepath.Join("/sys/fs/cgroup/memory", fields[2]), peak: "memory.max_usage_in_bytes"}
			file = "memory.limit_in_bytes"
			if _, err := os.Stat(g.dir); err != nil {
				g.dir = "/sys/fs/cgroup/memory" // the mount may begin at this process's own group
			}
		case "":
		default:
			continue
		}
		g.dir = filepath.Join(g.dir, fmt.Sprintf("ostiary-test-%d", os.Getpid()))
		if os.Mkdir(g.dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(g.dir) })
		if os.WriteFile(filepath.Join(g.dir, file), []byte(strconv.FormatInt(limit, 10)), 0o600) == nil {
			return g
		}
		_ = os.Remove(g.dir)
	}
	t.Skip("no cgroup can be made here")
	return cgroup{}
}

func (g cgroup) take(t *testing.T, pid int) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600))
}

func (g cgroup) mostHeld(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	must(t, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	must(t, err)
	return n
}

// bombs are reviews that take most of memory for their size, as large as bodies may be.
func bombs(namespace string) map[string][]byte {
	list := func(element string, size int) string {
		return `[` + strings.TrimSuffix(strings.Repeat(element+",", size/(len(element)+1)), ",") + `]`
	}
	pod := func(spec string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bomb","namespace":"` + namespace + `"},"spec":` + spec + `}`
	}
	review := func(object, more string) []byte {
		return []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","kind":{"group":"",` +
			`"version":"v1","kind":"Pod"},` +
			`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"` + namespace +
			`","name":"bomb","operation":"CREATE","dryRun":false,"object":` + object + more + `}}`)
	}
	const most = 27 << 20
	nested := strings.Repeat(`{"":`, 90) + `0` + strings.Repeat(`}`, 90)
	return map[string][]byte{
		"empty objects":          review(pod(`{"x":`+list(`{}`, 7<<20)+`}`), ""),
		"empty objects, allowed": review(pod(`{"x":`+list(`{}`, 2<<20)+`}`), ""),
		"one member":             review(pod(`{"x":`+list(`{"":0}`, 1<<20)+`}`), ""),
		"nested":                 review(pod(`{"x":`+list(nested, most)+`}`), ""),
		"nested, allowed":        review(pod(`{"x":`+list(nested, 1_100_000)+`}`), ""),
		"empty containers":       review(pod(`{"containers":`+list(`{}`, 2<<20)+`}`), ""),
		"escaped":                review(pod(`{"x":"`+strings.Repeat(`\u003c`, most/6)+`"}`), ""),
		"strings":                review(pod(`{"x":`+list(`""`, 3<<20)+`}`), ""),
		"groups":                 review(pod(`{}`), `,"userInfo":{"groups":`+list(`""`, 1_000_000)+`}`),
		"deep":                   review(pod(strings.Repeat(`{"`+strings.Repeat("n", 300)+`":`, 9_900)+`{}`+strings.Repeat(`}`, 9_900)), ""),
		"options":                review(pod(`{}`), `,"options":`+`{"x":`+list(`{}`, 20<<20)+`}`),
	}
}

// Six senders of the bodies that take most memory do not end a replica with the limits of the installation, and others
// are answered meanwhile.
func TestBombsStayBelowTheLimitOfMemory(t *testing.T) {
	c := install(t)
	group := limited(t, installedLimit)
	t.Setenv("GOMEMLIMIT", installedGo)
	c.manager(t)
	m := c.another(t)
	group.take(t, m.cmd.Process.Pid)
	namespace := c.namespace(t, nil)
	pods := func(p *v1alpha1.WebhookPolicy) {
		p.Spec.MatchConstraints.ResourceRules = append(p.Spec.MatchConstraints.ResourceRules, rule("", "pods", admissionregistrationv1.Create))
	}
	c.enforce(t,
		newPolicy("bombs", namespace, pods,
			saying(onlyGood+` && (!has(object.spec) || !has(object.spec.x) || type(object.spec.x) == string || `+
				`object.spec.x.all(i, type(i) != int))`)),
		newPolicy("bombs-adds", namespace, pods, patching(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`)),
		newPolicy("bombs-plugin", namespace, func(p *v1alpha1.WebhookPolicy) {
			p.Spec.MatchConstraints.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{
				rule("", "pods", admissionregistrationv1.Create),
			}
			p.Spec.Validations, p.Spec.Plugin = nil, &v1alpha1.Plugin{Name: "AlwaysPullImages"}
		}),
	)
	var targets []*caller
	for _, name := range []string{"bombs", "bombs-adds", "bombs-plugin"} {
		for _, config := range c.carriers(t, name) {
			targets = append(targets, c.calling(t, config.GetName()).at(t, m.webhook))
		}
	}
	all := bombs(namespace)
	names := slices.Sorted(maps.Keys(all))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var answers sync.Map
	var senders sync.WaitGroup
	for sender := range 6 {
		senders.Go(func() {
			for i := sender; ctx.Err() == nil; i++ {
				name := names[i%len(names)]
				resp, _, err := targets[(i/len(names)+sender)%len(targets)].do(ctx, http.MethodPost, "application/json", all[name])
				key := name + ": no answer"
				if err == nil {
					key = fmt.Sprintf("%s: %d", name, resp.StatusCode)
				}
				count, _ := answers.LoadOrStore(key, new(atomic.Int64))
				count.(*atomic.Int64).Add(1)
			}
		})
	}
	honest := c.caller(t, c.carrier(t, "bombs")).at(t, m.webhook)
	fine := review(t, "v1", namespace, bad)
	answered, failed := 0, 0
	for ctx.Err() == nil {
		if answer, err := honest.ask(ctx, fine); err == nil && !answer.Response.Allowed {
			answered++
		} else if ctx.Err() == nil {
			failed++
			t.Logf("an honest caller got %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	senders.Wait()
	answers.Range(func(key, count any) bool {
		t.Logf("%s, %d times", key, count.(*atomic.Int64).Load())
		return true
	})
	t.Logf("%d honest requests answered, %d not; most held: %d MiB", answered, failed, group.mostHeld(t)>>20)
	if m.ended() {
		t.Fatal("the replica was ended")
	}
	if answered == 0 {
		t.Error("no honest request was answered")
	}
	if held := group.mostHeld(t); held >= installedLimit {
		t.Errorf("the limit was reached: %d MiB", held>>20)
	}
	if answer, err := honest.ask(t.Context(), fine); err != nil || answer.Response.Allowed {
		t.Errorf("afterwards: got %v, want a denial", err)
	}
}

// calling is a caller for any webhook configuration.
func (c *cluster) calling(t *testing.T, name string) *caller {
	t.Helper()
	for _, resource := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		out, _, err := c.kubectl(t.Context(), "", "get", resource, name, "-o", "json")
		if err != nil {
			continue
		}
		config := &configuration{}
		must(t, json.Unmarshal([]byte(out), config))
		return c.caller(t, config)
	}
	t.Fatalf("no configuration %s", name)
	return nil
}
