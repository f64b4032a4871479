package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// panicsOn is a plugin that panics for objects with one name, and refuses those
// with another.
func panicsOn(c *pluginapi.Call) error {
	switch c.Object().GetName() {
	case "panics":
		panic("secret")
	case "bad":
		return c.Forbid("no")
	}
	return nil
}

// TestPanicChangesNoOtherAnswer: after many panics of one request, others are
// answered as before.
func TestPanicChangesNoOtherAnswer(t *testing.T) {
	const (
		failed = "WebhookPolicy 'p' denied request: internal error: the evaluation panicked"
		unseen = "WebhookPolicy 'p' did not evaluate this request: internal error: the evaluation panicked"
	)
	type got struct {
		Message  string
		Warnings []string
	}
	tests := map[string]struct {
		spec         string
		want         got
		wantMutating got
	}{
		"Fail":                 {want: got{Message: failed}, wantMutating: got{Message: failed}},
		"Ignore":               {spec: "failurePolicy: Ignore", want: got{Warnings: []string{unseen}}, wantMutating: got{Warnings: []string{unseen}}},
		"Ignore, two bindings": {spec: "failurePolicy: Ignore\nbindings: [{name: a, validationActions: [Deny]}, {name: b, validationActions: [Deny]}]", want: got{Warnings: []string{unseen}}, wantMutating: got{Warnings: []string{unseen}}},
		"Warn": {
			spec:         "bindings: [{name: b, validationActions: [Warn]}]",
			want:         got{Warnings: []string{"Validation failed for WebhookPolicy 'p' with binding 'b': internal error: the evaluation panicked"}},
			wantMutating: got{Message: "WebhookPolicy 'p' with binding 'b' denied request: internal error: the evaluation panicked"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, _ := sharedCompiler.CompilePlugin(policyFrom(t, "p", "plugin: {name: Any}\n"+tt.spec), pluginFunc(panicsOn), nil)
			group := NewGroup([]*Compiled{c})
			host, panics := hostOf(), 0
			host.Panicked = func(PanicReport) { panics++ }
			ask := func(object string, mutating bool) got {
				raw := podInput(t, admission.Create).review(t)
				raw.Object.Raw = []byte(`{"metadata":{"name":"` + object + `"}}`)
				put := evaluate
				if mutating {
					put = mutate
				}
				response := put(t, group, raw, host)
				out := got{Warnings: response.Warnings}
				if !response.Allowed {
					out.Message = response.Result.Message
				}
				return out
			}
			const times = 5
			for _, mutating := range []bool{false, true} {
				want, before := tt.want, ask("bad", mutating)
				if mutating {
					want = tt.wantMutating
				}
				for range times {
					if diff := cmp.Diff(want, ask("panics", mutating)); diff != "" {
						t.Errorf("mutating %t: answer (-want +got):\n%s", mutating, diff)
					}
				}
				if diff := cmp.Diff(before, ask("bad", mutating)); diff != "" || before.Message+strings.Join(before.Warnings, "") == "" && !mutating {
					t.Errorf("mutating %t: another answer (-before +after the panics):\n%s", mutating, diff)
				}
			}
			if want := 2 * times * max(1, strings.Count(tt.spec, "name: a, validationActions")); panics < want {
				t.Errorf("%d panics are reported, want %d", panics, want)
			}
		})
	}
}

// TestStacksOfPanics: each panic is reported, with a stack at most every 10
// seconds for each policy, and with nothing of the request.
func TestStacksOfPanics(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	var got []PanicReport
	host := Environment{Now: func() time.Time { return now }, Panicked: func(p PanicReport) { got = append(got, p) }}
	cause := func(c *Compiled, value any) {
		defer c.recovered(host, func() {})
		panic(value)
	}
	p, q := &Compiled{name: "p", uid: "uid", generation: 7}, &Compiled{name: "q"}
	var missing *int
	for _, step := range []struct {
		name      string
		after     time.Duration
		policy    *Compiled
		value     any
		wantStack bool
		wantErr   string
	}{
		{"the first", 0, p, "secret", true, "panic with a value of type string"},
		{"at the same time", 0, p, "secret", false, "panic with a value of type string"},
		{"of another policy", 0, q, errors.New("secret"), true, "panic with a value of type *errors.errorString"},
		{"a moment later", stackEvery - 1, p, "secret", false, "panic with a value of type string"},
		{"later", 1, p, ptr.To(1), true, "panic with a value of type *int"},
	} {
		now = now.Add(step.after)
		got = nil
		cause(step.policy, step.value)
		if len(got) != 1 || len(got[0].Stack) > 0 != step.wantStack || got[0].Err.Error() != step.wantErr || got[0].Policy != step.policy.name ||
			got[0].UID != step.policy.uid || got[0].Generation != step.policy.generation {
			t.Errorf("%s: reported %+v, want one with a stack: %t, and the error %q", step.name, got, step.wantStack, step.wantErr)
		}
	}
	func() {
		defer p.recovered(host, func() {})
		_ = *missing
	}()
	if text := got[len(got)-1].Err.Error(); !strings.Contains(text, "nil pointer dereference") {
		t.Errorf("error %q of the Go runtime, want its text", text)
	}
}
