package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// attackReviews sends reviews of every shape to every path: those that are
// registered, as whoever has seen a configuration can, and others.
func attackReviews(r *run) {
	r.prepareAttack()
	defer r.endAttack()
	r.under(attack{Kind: "reviews", Count: r.size.of(5_000, 1_000_000), Over: time.Duration(r.size.of(4, 90)) * time.Minute})
}

// report counts what attackers see. Its methods may be used concurrently.
type report struct {
	mu sync.Mutex
	t  attackCounts
}

func newReport() *report {
	return &report{t: attackCounts{Codes: map[string]int{}, Kinds: map[string]int{}}}
}

func (r *report) count(code string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Attempts++
	r.t.Codes[code]++
}

func (r *report) wrong(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.t.Wrong) < 20 {
		r.t.Wrong = append(r.t.Wrong, fmt.Sprintf(format, args...))
	}
}

func (r *report) countWitness() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Witnesses++
}

// answered counts an attempt of a kind that a replica had to work for.
func (r *report) answered(kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Kinds[kind]++
}

func (r *report) counts() attackCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.t
	out.Codes, out.Kinds = maps.Clone(r.t.Codes), maps.Clone(r.t.Kinds)
	return out
}

// assault is what a process of attackers can do. Each of its kinds must have as many
// answers as the attack says.
type assault struct {
	send  func(context.Context, attack, *report)
	kinds []string
}

// assaults are those that there are.
func assaults() map[string]assault {
	return map[string]assault{
		"reviews":      {sendReviews, []string{"reviews"}},
		"objects":      {sendObjects, slices.Sorted(maps.Keys(objectBombs()))},
		"compilations": {sendCompilations, slices.Sorted(maps.Keys(policyBombs()))},
		"announced":    {holdAnnounced, announcements()},
		"tenant":       {attackAsTenant, tenantKinds()},
		"ports":        {attackPorts, portKinds()},
	}
}

// attacker is one sender of requests, with an address of its own.
type attacker struct {
	attack
	client *http.Client
	random *rand.Rand
	report *report
}

func newAttacker(a attack, serial int, report *report) *attacker {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 101, 0, byte(1+serial))}}
	return &attacker{
		attack: a, report: report, random: rand.New(rand.NewPCG(a.Seed, uint64(serial))),
		client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DialContext:     dialer.DialContext,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, // nothing secret is sent
		}},
	}
}

// sendAll has all attackers send until the attack is over or Count is reached.
func sendAll(ctx context.Context, a attack, report *report, send func(ctx context.Context, w *attacker, n int)) {
	var group sync.WaitGroup
	for i := range attackers {
		group.Go(func() {
			w := newAttacker(a, i, report)
			defer w.client.CloseIdleConnections()
			for n := i; ctx.Err() == nil && (a.Count == 0 || n < a.Count); n += attackers {
				send(ctx, w, n)
			}
		})
	}
	group.Wait()
}

// anyOf is any of some values.
func anyOf[T any](r *rand.Rand, values []T) T { return values[r.IntN(len(values))] }

// post sends a body to any replica and returns the status code, 0 for none, and
// the answer.
func (w *attacker) post(ctx context.Context, path string, body []byte) (int, []byte) {
	url := "https://" + anyOf(w.random, w.Addresses) + path + "?timeout=30s"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		w.report.wrong("making a request: %v", err)
		return 0, nil
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		w.report.count("broken")
		return 0, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		w.report.count("broken")
		return 0, nil
	}
	w.report.count(strconv.Itoa(resp.StatusCode))
	return resp.StatusCode, answer
}

// sendReviews sends reviews that were valid before they were changed at random.
func sendReviews(ctx context.Context, a attack, report *report) {
	sendAll(ctx, a, report, func(ctx context.Context, w *attacker, _ int) {
		defer report.answered("reviews")
		switch w.random.IntN(10) {
		case 0, 1, 2:
			w.sendBad(ctx)
		case 3:
			w.sendGood(ctx)
		default:
			path := anyOf(w.random, w.Attacked)
			if w.random.IntN(3) == 0 {
				path = anyOf(w.random, append(slices.Clone(w.Paths), "/", "/validate/none", "/mutate/..", "/canary/validate", w.Review))
			}
			review := w.review()
			for range w.random.IntN(4) {
				review, _ = w.change(review, 0).(map[string]any)
			}
			if request, ok := review["request"].(map[string]any); ok && w.random.IntN(10) == 0 {
				request[anyOf(w.random, []string{"object", "oldObject"})] = nil
			}
			text, uid := marshal(review), uidOf(review)
			body := w.distort(text)
			if !bytes.Equal(body, text) {
				uid = "" // it may be what was changed
			}
			code, answer := w.post(ctx, path, body)
			w.check(code, answer, uid)
		}
	})
}

// sendBad sends what has to be denied, with an object that is changed in
// everything but its name.
func (w *attacker) sendBad(ctx context.Context) {
	object, _ := w.change(map[string]any{"data": map[string]any{"a": "b"}, "spec": w.value(0)}, 0).(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object["metadata"] = map[string]any{"name": "bad-witness", "namespace": attackedPlace, "labels": w.value(0), "annotations": w.value(0)}
	object["kind"], object["apiVersion"] = "ConfigMap", "v1"
	code, answer := w.post(ctx, w.Witness, marshal(reviewOf("CREATE", "", "ConfigMap", "configmaps", "bad-witness", object, nil)))
	w.report.countWitness()
	if code == http.StatusOK && !strings.Contains(string(answer), `"allowed":false`) {
		w.report.wrong("what is bad is answered with %.300s", answer)
	}
}

// sendGood sends what has to be allowed, untouched.
func (w *attacker) sendGood(ctx context.Context) {
	object := map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"name": "good", "namespace": attackedPlace}}
	code, answer := w.post(ctx, w.Witness, marshal(reviewOf("CREATE", "", "ConfigMap", "configmaps", "good", object, nil)))
	w.report.countWitness()
	if code == http.StatusOK && !strings.Contains(string(answer), `"allowed":true`) {
		w.report.wrong("what is good is answered with %.300s", answer)
	}
}

// check looks whether an answer is a review with the UID that was sent.
func (w *attacker) check(code int, answer []byte, uid string) {
	if code != http.StatusOK {
		return
	}
	var review struct {
		Response *struct{ UID string }
	}
	if err := json.Unmarshal(answer, &review); err != nil || review.Response == nil || uid != "" && review.Response.UID != uid {
		w.report.wrong("a review with the UID %q is answered with %.300s", uid, answer)
	}
}

func uidOf(review map[string]any) string {
	request, _ := review["request"].(map[string]any)
	uid, _ := request["uid"].(string)
	return uid
}

func marshal(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return out
}

func reviewOf(operation, group, kind, resource, name string, object, old any) map[string]any {
	return map[string]any{
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"request": map[string]any{
			"uid":       fmt.Sprintf("uid-%d", rand.Uint64()),
			"kind":      map[string]any{"group": group, "version": "v1", "kind": kind},
			"resource":  map[string]any{"group": group, "version": "v1", "resource": resource},
			"name":      name,
			"namespace": attackedPlace, "operation": operation, "dryRun": false,
			"userInfo": map[string]any{"username": "mallory", "groups": []any{"system:authenticated"}},
			"object":   object, "oldObject": old, "options": nil,
		},
	}
}

// review is a valid review of something that policies are for.
func (w *attacker) review() map[string]any {
	type base struct {
		group, kind, resource string
		spec                  map[string]any
	}
	pod := map[string]any{
		"containers": []any{
			map[string]any{
				"name":      "a",
				"image":     "b",
				"resources": map[string]any{"requests": map[string]any{"example.com/gpu": "1"}},
			},
		},
		"initContainers": []any{map[string]any{"name": "i", "image": "i"}},
		"nodeSelector":   map[string]any{"pool": "general"},
		"tolerations":    []any{map[string]any{"key": "pool", "operator": "Exists", "tolerationSeconds": 5}},
		"affinity": map[string]any{
			"podAntiAffinity": map[string]any{
				"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"topologyKey": "zone"}},
			},
		},
		"securityContext":  map[string]any{"runAsUser": 0},
		"runtimeClassName": "kata",
	}
	b := anyOf(w.random, []base{
		{kind: "Pod", resource: "pods", spec: pod},
		{kind: "ConfigMap", resource: "configmaps"},
		{kind: "Namespace", resource: "namespaces"},
		{
			kind:     "Service",
			resource: "services",
			spec:     map[string]any{"externalIPs": []any{"1.2.3.4"}, "ports": []any{map[string]any{"port": 80}}},
		},
		{
			kind:     "PersistentVolumeClaim",
			resource: "persistentvolumeclaims",
			spec:     map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}},
		},
		{kind: "Event", resource: "events"},
		{group: "networking.k8s.io", kind: "Ingress", resource: "ingresses", spec: map[string]any{"rules": []any{}}},
		{
			group:    "apps",
			kind:     "Deployment",
			resource: "deployments",
			spec:     map[string]any{"template": map[string]any{"spec": pod}},
		},
		{
			group:    "attack.example.com",
			kind:     "Bomb",
			resource: "bombs",
			spec:     map[string]any{"a": []any{nil, "b"}, "template": map[string]any{"spec": pod}},
		},
		{
			group:    "admission.ostiary.dev",
			kind:     "WebhookPolicy",
			resource: "webhookpolicies",
			spec:     map[string]any{"validations": []any{map[string]any{"expression": "true"}}},
		},
	})
	version := "v1"
	if b.group != "" {
		version = b.group + "/v1"
	}
	object := func() map[string]any {
		return map[string]any{
			"apiVersion": version, "kind": b.kind, "spec": b.spec, "data": map[string]any{"a": "10.0.0.0/8"},
			"metadata": map[string]any{
				"name": "x", "namespace": attackedPlace, "labels": map[string]any{"a": "b"},
				"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "blockOwnerDeletion": true}},
			},
		}
	}
	operation := anyOf(w.random, []string{"CREATE", "UPDATE", "DELETE", "CONNECT"})
	var now, old any
	if operation == "CREATE" || operation == "UPDATE" {
		now = object()
	}
	if operation == "UPDATE" || operation == "DELETE" {
		old = object()
	}
	return reviewOf(operation, b.group, b.kind, b.resource, "x", now, old)
}

// change replaces, adds or removes one thing at any depth of a tree, which it
// does not change itself.
func (w *attacker) change(tree any, depth int) any {
	if depth > 12 || w.random.IntN(6) == 0 && depth > 0 {
		return w.value(0)
	}
	switch t := tree.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(t))
		out := maps.Clone(t)
		if out == nil {
			out = map[string]any{}
		}
		switch n := w.random.IntN(8); {
		case len(keys) == 0 || n == 0:
			out[fmt.Sprintf("extra%d", w.random.IntN(3))] = w.value(0)
		case n == 1:
			delete(out, anyOf(w.random, keys))
		default:
			key := anyOf(w.random, keys)
			out[key] = w.change(t[key], depth+1)
		}
		return out
	case []any:
		out := slices.Clone(t)
		if len(out) == 0 || w.random.IntN(5) == 0 {
			return append(out, w.value(0))
		}
		i := w.random.IntN(len(out))
		out[i] = w.change(out[i], depth+1)
		return out
	}
	return w.value(0)
}

// value is any value, mostly one that programs stumble over.
func (w *attacker) value(depth int) any {
	simple := []any{
		nil, true, false, "", "x", 0, -1, 1, json.Number("9223372036854775808"), json.Number("1e400"), json.Number("-0"), 0.1,
		"1e999999999", "-1e-999999999", "9999999999999999999999Ei", "10.0.0.0/8", "::/0", "fe80::1%eth0/64", "http://[::1",
		"2026-13-45T99:99:99Z",
		strings.Repeat("a", 4000) + "!", strings.Repeat("{{", 2000), "\x00\x7f\u2028<>&", "kube-system", "system:masters",
		"../..", map[string]any{}, []any{}, []any{nil, "b"},
	}
	if depth > 3 || w.random.IntN(4) > 0 {
		return anyOf(w.random, simple)
	}
	if w.random.IntN(50) == 0 {
		return w.deep()
	}
	if w.random.IntN(2) == 0 {
		return []any{w.value(depth + 1), w.value(depth + 1)}
	}
	return map[string]any{"a": w.value(depth + 1), "": w.value(depth + 1), "name": w.value(depth + 1)}
}

// deep is a value that is nested far.
func (w *attacker) deep() any {
	var out any = "x"
	for range anyOf(w.random, []int{50, 500, 5000}) {
		if w.random.IntN(2) == 0 {
			out = []any{out}
		} else {
			out = map[string]any{"a": out}
		}
	}
	return out
}

// distort now and then makes of a JSON text what encoders do not write.
func (w *attacker) distort(text []byte) []byte {
	at := w.random.IntN(max(len(text), 1))
	insert := func(after byte, what string) []byte {
		i := bytes.IndexByte(text[min(at, len(text)):], after)
		if i < 0 {
			return text
		}
		return slices.Concat(text[:at+i+1], []byte(what), text[at+i+1:])
	}
	switch w.random.IntN(16) {
	case 0:
		return text[:at]
	case 1:
		return insert('{', `"object":{},"object":{"a":1,"a":2},`)
	case 2:
		return insert('{', `"name":"y","name":"x",`)
	case 3:
		return insert('"', `\ud800`)
	case 4:
		return insert('"', "\xff\xfe")
	case 5:
		return insert('[', strings.Repeat("[", 12_000))
	case 6:
		out := slices.Clone(text)
		if len(out) > 0 {
			out[at] ^= byte(1 << w.random.IntN(8))
		}
		return out
	}
	return text
}
