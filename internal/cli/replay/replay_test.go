package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policy"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// requireTeam denies Pods without the label team, and immutable denies changes of it.
const requireTeam = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: require-team}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE, DELETE]}]
    namespaceSelector: {matchLabels: {checked: "true"}}
  validations:
  - {expression: "request.operation == 'DELETE' || has(object.metadata.labels) && 'team' in object.metadata.labels", message: "add the label team"}
---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: keep-team}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [UPDATE]}]
  validations:
  - {expression: "object.metadata.name == oldObject.metadata.name"}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {checked: "true"}}
`

// policiesOf returns the policies in a manifest.
func policiesOf(t testing.TB, manifest string) *Policies {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	must(t, os.WriteFile(file, []byte(manifest), 0o600))
	objects, err := load.Objects(context.Background(), []string{file}, load.Options{})
	must(t, err)
	in, err := offline.Sort(objects)
	must(t, err)
	apis, err := offline.NewAPIs(policy.LatestEngine, in.Definitions)
	must(t, err)
	engine, err := offline.NewEngine(in.Policies, policy.NewCompilerFor(policy.LatestEngine), apis)
	must(t, err)
	world := offline.NewWorld(apis, in.Namespaces, in.Objects, offline.Answers(nil))
	world.AddExceptions(in.Exceptions)
	return &Policies{Engine: engine, World: world}
}

// pod returns a Pod in JSON.
func pod(name, namespace, labels string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":%q,"labels":{%s}},"spec":{"containers":[{"name":"a","image":"b"}]}}`, name, namespace, labels)
}

// logged returns an audit event for a Pod.
func logged(verb, user, namespace, name, more string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-%s","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/%s/pods","verb":%q,`+
		`"user":{"username":%q,"groups":["system:authenticated"]},"objectRef":{"resource":"pods","namespace":%q,"name":%q,"apiVersion":"v1"},"requestReceivedTimestamp":"2026-06-01T12:00:00.000000Z"%s}`+"\n",
		name, namespace, verb, user, namespace, name, more)
}

func replay(t *testing.T, log string, policies, others *Policies) (*Summary, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.log")
	must(t, os.WriteFile(file, []byte(log), 0o600))
	s, err := Replay(t.Context(), []string{file}, nil, policies, others, nil)
	if s != nil {
		for i := range s.Rows {
			s.Rows[i].Example.File = filepath.Base(s.Rows[i].Example.File)
		}
	}
	return s, err
}

// ignored are the fields of a summary that are not part of the result.
var ignored = cmp.Options{cmpopts.IgnoreUnexported(Summary{}, Example{}), cmpopts.EquateEmpty()}

// TestReplayOfRatchet: whether the stored object fails a validation too is not known, so an
// update that fails it has no decision.
func TestReplayOfRatchet(t *testing.T) {
	policies := policiesOf(t, strings.Replace(requireTeam, "spec:\n", "spec:\n  ratchet: true\n", 1))
	updated := func(labels string) string {
		return logged("update", "ann", "shop", "a", `,"responseStatus":{"code":200},"requestObject":`+pod("a", "shop", labels))
	}
	for name, tc := range map[string]struct {
		log, want, wantMessage string
	}{
		"an update that fails":  {updated(""), "unknown", "the policy has ratchet, which depends on the stored object, and the log does not have it"},
		"an update that passes": {updated(`"team":"x"`), "allow", ""},
		"a creation that fails": {logged("create", "ann", "shop", "a", `,"responseStatus":{"code":201},"requestObject":`+pod("a", "shop", "")), "deny", "WebhookPolicy 'require-team' denied request: add the label team"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := replay(t, tc.log, policies, nil)
			must(t, err)
			message := ""
			for _, row := range got.Rows {
				if row.Key.Policy == "require-team" {
					message = row.Example.Message
				}
			}
			if got.Decisions["require-team"][tc.want] != 1 || message != tc.wantMessage {
				t.Errorf("decisions %v, message %q; want %s, %q", got.Decisions["require-team"], message, tc.want, tc.wantMessage)
			}
		})
	}
}

// TestReplayAtRequests: an exception has the effect that it has at the time of the request, or at the time of --at.
func TestReplayAtRequests(t *testing.T) {
	const exception = `---
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicyException
metadata: {name: x, namespace: shop}
spec: {policyName: require-team, validations: ["*"], match: [{resources: [pods]}], reason: r, expirationTime: "2026-06-01T12:00:00Z"}
`
	created := func(at string) string {
		event := logged("create", "ann", "shop", "a", `,"responseStatus":{"code":201},"requestObject":`+pod("a", "shop", ""))
		return strings.Replace(event, "2026-06-01T12:00:00.000000Z", at, 1)
	}
	before, after := time.Date(2026, 6, 1, 11, 0, 0, 0, time.UTC), time.Date(2026, 6, 1, 13, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		received string
		at       time.Time // of the world
		fixed    bool
		want     string
	}{
		"before the end":           {received: "2026-06-01T11:59:59.999999Z", at: after, want: "excepted"},
		"at the end":               {received: "2026-06-01T12:00:00.000000Z", at: before, want: "deny"},
		"in another zone":          {received: "2026-06-01T13:59:59.000000+02:00", at: after, want: "excepted"},
		"no time":                  {at: before, want: "excepted"},
		"an invalid time":          {received: "noon", at: after, want: "deny"},
		"with --at":                {received: "2026-06-01T11:00:00.000000Z", at: after, fixed: true, want: "deny"},
		"with --at before the end": {received: "2026-06-01T13:00:00.000000Z", at: before, fixed: true, want: "excepted"},
	} {
		t.Run(name, func(t *testing.T) {
			policies := policiesOf(t, strings.Replace(requireTeam, "spec:\n", "spec:\n  exceptions: {}\n", 1)+exception)
			policies.World.SetTime(tc.at)
			policies.AtRequests = !tc.fixed
			got, err := replay(t, created(tc.received), policies, nil)
			must(t, err)
			if got.Decisions["require-team"][tc.want] != 1 {
				t.Errorf("decisions %v, want %s", got.Decisions["require-team"], tc.want)
			}
		})
	}
}

// TestReplayOfLookups: a log does not have the objects that a policy looks up, and a dump has them.
func TestReplayOfLookups(t *testing.T) {
	const unique = `
apiVersion: admission.ostiary.dev/v1alpha1
kind: WebhookPolicy
metadata: {name: unique-team}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions:
  - {name: named, expression: "object.metadata.name != 'skipped'"}
  lookups:
  - name: same
    resource: {version: v1, resource: services}
    storedKeys: "[stored.metadata.name]"
    requestKeys: "[object.metadata.name]"
  validations: [{expression: lookups.same.size() > 0, message: no Service}]
`
	const dump = "---\n{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}}\n"
	for name, tc := range map[string]struct{ manifest, pod, want, wantMessage string }{
		"without a dump": {
			manifest: unique, pod: "a", want: "unknown",
			wantMessage: "the policy looks up services, which the log does not have: name a dump of them with -f",
		},
		"with a dump": {manifest: unique + dump, pod: "a", want: "allow"},
		"with a dump without it": {
			manifest: unique + dump, pod: "b", want: "deny", wantMessage: "WebhookPolicy 'unique-team' denied request: no Service",
		},
		"a request that is skipped": {manifest: unique, pod: "skipped", want: "skip"},
		"a condition that looks up": {
			manifest: strings.Replace(unique, "object.metadata.name != 'skipped'", "lookups.same.size() > 0", 1), pod: "a", want: "unknown",
			wantMessage: "the policy looks up services, which the log does not have: name a dump of them with -f",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := logged("create", "ann", "shop", tc.pod, `,"responseStatus":{"code":201},"requestObject":`+pod(tc.pod, "shop", ""))
			got, err := replay(t, log, policiesOf(t, tc.manifest), nil)
			must(t, err)
			message := ""
			for _, row := range got.Rows {
				message = row.Example.Message
			}
			if got.Decisions["unique-team"][tc.want] != 1 || message != tc.wantMessage {
				t.Errorf("decisions %v, message %q; want %s, %q", got.Decisions["unique-team"], message, tc.want, tc.wantMessage)
			}
		})
	}
}

func TestReplay(t *testing.T) {
	labelled, bare := pod("a", "shop", `"team":"x"`), pod("a", "shop", "")
	ok := `,"responseStatus":{"code":201}`
	denied := func(verb, user, line string) []Row {
		return []Row{{Key: Key{Policy: "require-team", Decision: "deny", User: user, Namespace: "shop", Resource: "pods"}, Count: 1,
			Example: Example{File: "audit.log", Line: 1, AuditID: "id-a", Time: "2026-06-01T12:00:00.000000Z", Object: "a", Message: "WebhookPolicy 'require-team' denied request: add the label team"}}}
	}
	for name, tc := range map[string]struct {
		log  string
		want Summary
	}{
		"a created object that is denied": {
			log:  logged("create", "ann", "shop", "a", ok+`,"requestObject":`+bare+`,"responseObject":`+bare),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "deny"), Rows: denied("create", "ann", "")},
		},
		"one that is allowed": {
			log:  logged("create", "ann", "shop", "a", ok+`,"requestObject":`+labelled),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "allow")},
		},
		"the result rather than what the client sent": {
			log:  logged("create", "ann", "shop", "a", ok+`,"requestObject":`+bare+`,"responseObject":`+labelled),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "allow")},
		},
		"what the client sent if the request failed": {
			log:  logged("create", "ann", "shop", "a", `,"responseStatus":{"code":409},"requestObject":`+bare+`,"responseObject":{"kind":"Status","apiVersion":"v1"}`),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "deny"), Rows: denied("create", "ann", "")},
		},
		"an impersonated user": {
			log:  logged("create", "ann", "shop", "a", ok+`,"impersonatedUser":{"username":"bob"},"requestObject":`+bare),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "deny"), Rows: denied("create", "bob", "")},
		},
		"a namespace that is not selected": {
			log:  logged("create", "ann", "other", "a", ok+`,"requestObject":`+pod("a", "other", "")),
			want: Summary{Events: 1, Requests: 1},
		},
		"an update, of which the old object is not known": {
			log: logged("update", "ann", "shop", "a", ok+`,"requestObject":`+labelled),
			want: Summary{Events: 1, Requests: 1, Decisions: map[string]map[string]int{"require-team": {"allow": 1}, "keep-team": {"unknown": 1}},
				Rows: []Row{{Key: Key{Policy: "keep-team", Decision: "unknown", User: "ann", Namespace: "shop", Resource: "pods"}, Count: 1,
					Example: Example{File: "audit.log", Line: 1, AuditID: "id-a", Time: "2026-06-01T12:00:00.000000Z", Object: "a", Message: "the policy reads oldObject, which the log does not have"}}}},
		},
		"a patch with its result": {
			log: logged("patch", "ann", "shop", "a", `,"responseStatus":{"code":200},"requestObject":{"metadata":{}},"responseObject":`+labelled),
			want: Summary{Events: 1, Requests: 1, Decisions: map[string]map[string]int{"require-team": {"allow": 1}, "keep-team": {"unknown": 1}},
				Rows: []Row{{Key: Key{Policy: "keep-team", Decision: "unknown", User: "ann", Namespace: "shop", Resource: "pods"}, Count: 1,
					Example: Example{File: "audit.log", Line: 1, AuditID: "id-a", Time: "2026-06-01T12:00:00.000000Z", Object: "a", Message: "the policy reads oldObject, which the log does not have"}}}},
		},
		"a patch without its result": {
			log:  logged("patch", "ann", "shop", "a", `,"responseStatus":{"code":200},"requestObject":{"metadata":{}}`),
			want: Summary{Events: 1, Skipped: map[string]int{skippedPatch: 1}},
		},
		"a deleted object": {
			log:  logged("delete", "ann", "shop", "a", `,"responseStatus":{"code":200},"responseObject":`+bare),
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "allow")},
		},
		"a deletion without the object": {
			log:  logged("delete", "ann", "shop", "a", `,"responseStatus":{"code":200},"responseObject":{"kind":"Status","apiVersion":"v1"}`),
			want: Summary{Events: 1, Skipped: map[string]int{skippedDeletion: 1}},
		},
		"a deletion of a collection": {
			log:  logged("deletecollection", "ann", "shop", "", ok),
			want: Summary{Events: 1, Skipped: map[string]int{skippedCollection: 1}},
		},
		"metadata only": {
			log:  strings.Replace(logged("create", "ann", "shop", "a", ok), "RequestResponse", "Metadata", 1),
			want: Summary{Events: 1, Skipped: map[string]int{skippedLevel: 1}},
		},
		"a request that authorization refused": {
			log:  logged("create", "ann", "shop", "a", `,"annotations":{"authorization.k8s.io/decision":"forbid"},"requestObject":`+bare),
			want: Summary{Events: 1, Skipped: map[string]int{skippedRefused: 1}},
		},
		"a connection that authorization refused": {
			log:  strings.Replace(logged("create", "ann", "shop", "a", `,"responseStatus":{"code":403},"annotations":{"authorization.k8s.io/decision":"forbid"}`), `"resource":"pods"`, `"resource":"pods","subresource":"exec"`, 1),
			want: Summary{Events: 1, Skipped: map[string]int{skippedRefused: 1}},
		},
		"a connection without credentials": {
			log:  strings.Replace(logged("get", "", "shop", "a", `,"responseStatus":{"code":401}`), `"resource":"pods"`, `"resource":"pods","subresource":"exec"`, 1),
			want: Summary{Events: 1, Skipped: map[string]int{skippedRefused: 1}},
		},
		"a connection": {
			log:  strings.Replace(logged("create", "ann", "shop", "a", `,"responseStatus":{"code":101}`), `"resource":"pods"`, `"resource":"pods","subresource":"exec"`, 1),
			want: Summary{Events: 1, Requests: 1},
		},
		"a read": {log: logged("get", "ann", "shop", "a", ok), want: Summary{Events: 1}},
		"another stage": {
			log:  strings.Replace(logged("create", "ann", "shop", "a", ok+`,"requestObject":`+bare), "ResponseComplete", "RequestReceived", 1),
			want: Summary{Events: 1},
		},
		"a list of events": {
			log:  `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + logged("create", "ann", "shop", "a", ok+`,"requestObject":`+bare) + `]}`,
			want: Summary{Events: 1, Requests: 1, Decisions: decisions("require-team", "deny"), Rows: denied("create", "ann", "")},
		},
		"the beginning of a line at the end": {
			log:  logged("get", "ann", "shop", "a", ok) + `{"kind":"Ev`,
			want: Summary{Events: 1, Truncated: true},
		},
		"an empty log": {},
	} {
		t.Run(name, func(t *testing.T) {
			tc.log = strings.ReplaceAll(tc.log, "}\n]", "}]")
			got, err := replay(t, tc.log, policiesOf(t, requireTeam), nil)
			must(t, err)
			if diff := cmp.Diff(&tc.want, got, ignored); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func decisions(policy, decision string) map[string]map[string]int {
	return map[string]map[string]int{policy: {decision: 1}}
}

func TestInvalidLogs(t *testing.T) {
	event := logged("get", "ann", "shop", "a", "")
	for name, tc := range map[string]struct{ log, want string }{
		"not JSON":         {log: "a\nb\n", want: "audit.log:1:1: not an audit event: "},
		"another kind":     {log: `{"kind":"Pod"}` + "\n", want: `audit.log:1:1: the line has the kind "Pod": name audit logs of API servers`},
		"binary data":      {log: "\x00\x01\x02\n", want: "audit.log:1:1: not an audit event: "},
		"an invalid gzip":  {log: "\x1f\x8b\x00\x00", want: "audit.log: not a gzip file: "},
		"a very long line": {log: event + strings.Repeat(" ", maxLine+2<<20) + "\n", want: "audit.log:2:1: the line is longer than 32 MiB"},
		"a list of others": {log: `{"kind":"EventList","items":[1]}` + "\n", want: "audit.log:1:1: not a list of audit events: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := replay(t, tc.log, policiesOf(t, requireTeam), nil)
			var invalid *LogError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want a LogError", err)
			}
			invalid.File = filepath.Base(invalid.File)
			if !strings.HasPrefix(invalid.Error(), tc.want) {
				t.Errorf("got %q, want %q", invalid.Error(), tc.want)
			}
		})
	}
}

// Compressed and rotated files, and stdin, are one log.
func TestLogsOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	event := func(name string) string {
		return logged("create", "ann", "shop", name, `,"requestObject":`+pod(name, "shop", ""))
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := io.WriteString(writer, event("first"))
	must(t, err)
	must(t, writer.Close())
	must(t, os.WriteFile(filepath.Join(dir, "audit-2026-05-01T00-00-00.000.log.gz"), packed.Bytes(), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "audit.log"), []byte(event("second")), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("-"), 0o600))
	logs, err := Files([]string{dir, Stdin})
	must(t, err)
	got, err := Replay(t.Context(), logs, strings.NewReader(event("third")), policiesOf(t, requireTeam), nil, nil)
	must(t, err)
	if len(got.Rows) != 1 || got.Rows[0].Count != 3 || got.Rows[0].Example.Object != "first" {
		t.Errorf("got %+v, want one row with 3 requests, the first as the example", got.Rows)
	}
}

func TestCompare(t *testing.T) {
	stricter := strings.ReplaceAll(requireTeam, `has(object.metadata.labels) && 'team' in object.metadata.labels`, `has(object.metadata.labels) && 'owner' in object.metadata.labels`)
	added := requireTeam + "---\n" + strings.Replace(strings.Split(requireTeam, "---")[0], "require-team", "added", 1)
	log := logged("create", "ann", "shop", "a", `,"requestObject":`+pod("a", "shop", `"team":"x"`)) + logged("create", "ann", "shop", "b", `,"requestObject":`+pod("b", "shop", ""))
	type difference struct{ policy, before, decision, object string }
	for name, tc := range map[string]struct {
		policies, others string
		want             []difference
	}{
		"equal policies":   {policies: requireTeam, others: requireTeam},
		"a stricter one":   {policies: stricter, others: requireTeam, want: []difference{{"require-team", "allow", "deny", "a"}}},
		"a weaker one":     {policies: requireTeam, others: stricter, want: []difference{{"require-team", "deny", "allow", "a"}}},
		"an added policy":  {policies: added, others: requireTeam, want: []difference{{"added", "absent", "deny", "b"}}},
		"a removed policy": {policies: requireTeam, others: added, want: []difference{{"added", "deny", "absent", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := replay(t, log, policiesOf(t, tc.policies), policiesOf(t, tc.others))
			must(t, err)
			var got []difference
			for _, r := range s.Rows {
				got = append(got, difference{r.Policy, r.Before, r.Decision, r.Example.Object})
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(difference{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Rows beyond the limit are counted together.
func TestRowsAreBounded(t *testing.T) {
	s := newSummary()
	for i := range maxRows + 10 {
		s.count(Key{Policy: "p", Decision: "deny", User: fmt.Sprint(i)}, func() Example { return Example{Line: i} })
	}
	s.finish()
	if len(s.Rows) != maxRows+1 || s.Rows[0].User != others || s.Rows[0].Count != 10 {
		t.Errorf("got %d rows, the first is %+v; want %d, and 10 others", len(s.Rows), s.Rows[0], maxRows+1)
	}
}

// The result does not depend on the order in which workers finish.
func TestReplayIsDeterministic(t *testing.T) {
	var log strings.Builder
	padding := strings.Repeat("x", 2<<10)
	for i := range 2000 {
		name := fmt.Sprintf("p%d", i)
		log.WriteString(logged("create", fmt.Sprintf("user-%d", i%7), "shop", name, `,"userAgent":"`+padding+`","requestObject":`+pod(name, "shop", "")))
	}
	if log.Len() < 3*batchSize {
		t.Fatal("the log has too few batches")
	}
	first, err := replay(t, log.String(), policiesOf(t, requireTeam), nil)
	must(t, err)
	second, err := replay(t, log.String(), policiesOf(t, requireTeam), nil)
	must(t, err)
	if diff := cmp.Diff(first, second, ignored); diff != "" || first.Requests != 2000 || len(first.Rows) != 7 {
		t.Errorf("%d requests, %d rows; (-first +second):\n%s", first.Requests, len(first.Rows), diff)
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte(logged("create", "ann", "shop", "a", `,"requestObject":`+pod("a", "shop", ""))))
	f.Add([]byte(`{"kind":"EventList","items":[{"kind":"Event","stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"pods","apiVersion":"v1"},"requestObject":[]}]}` + "\n"))
	f.Add([]byte("\x1f\x8b"))
	policies := policiesOf(f, requireTeam)
	f.Fuzz(func(t *testing.T, log []byte) {
		s, err := Replay(t.Context(), []string{Stdin}, bytes.NewReader(log), policies, nil, nil)
		var invalid *LogError
		if err != nil && !errors.As(err, &invalid) {
			t.Skip("an evaluation that failed: the log is valid")
		}
		if err == nil && s.Requests > s.Events {
			t.Errorf("%d requests of %d events", s.Requests, s.Events)
		}
	})
}

// benchmarkLog returns a log of some MiB with requests that most policies match.
func benchmarkLog(size int) string {
	var log strings.Builder
	container := `{"name":"a","image":"registry.example.com/a:1","env":[` + strings.Repeat(`{"name":"KEY","value":"a value of a variable"},`, 20) + `{"name":"LAST","value":"x"}]}`
	for i := 0; log.Len() < size; i++ {
		name := fmt.Sprintf("pod-%d", i)
		object := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","labels":{"team":"x"}},"spec":{"containers":[%s,%s]}}`, name, container, container)
		log.WriteString(logged("create", "system:serviceaccount:kube-system:replicaset-controller", "shop", name, `,"responseStatus":{"code":201},"requestObject":`+object+`,"responseObject":`+object))
	}
	return log.String()
}

// twenty are 20 policies for Pods.
func twenty() string {
	var out strings.Builder
	for i := range 20 {
		out.WriteString(strings.Replace(strings.Split(requireTeam, "---")[0], "require-team", fmt.Sprintf("policy-%d", i), 1) + "---")
	}
	return out.String() + strings.Split(requireTeam, "---")[2]
}

func BenchmarkReplay(b *testing.B) {
	log, policies := benchmarkLog(64<<20), policiesOf(b, twenty())
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		s, err := Replay(b.Context(), []string{Stdin}, strings.NewReader(log), policies, nil, nil)
		must(b, err)
		b.ReportMetric(float64(s.Requests), "requests")
	}
}

// BenchmarkDecode decodes the same events and no more, on all processors.
func BenchmarkDecode(b *testing.B) {
	log := []byte(benchmarkLog(64 << 20))
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		done := make(chan error)
		lines := bytes.SplitAfter(log, []byte("\n"))
		workers := runtime.GOMAXPROCS(0)
		for w := range workers {
			go func() {
				for i := w; i < len(lines)-1; i += workers {
					if _, err := decodeEvent(lines[i]); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range workers {
			must(b, <-done)
		}
	}
}
