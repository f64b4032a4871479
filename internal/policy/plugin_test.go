package policy

import (
	"context"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// pluginFunc is a plugin that does what a test says.
type pluginFunc func(*pluginapi.Call) error

func (pluginFunc) Rules() []admissionregistrationv1.RuleWithOperations { return nil }

func (a pluginFunc) Validate(_ context.Context, call *pluginapi.Call) error { return a(call) }

func (a pluginFunc) Admit(_ context.Context, call *pluginapi.Call) (*unstructured.Unstructured, error) {
	err := a(call)
	changed := call.Object().DeepCopy()
	changed.SetLabels(map[string]string{"changed": "yes"})
	return changed, err
}

// TestPluginAnswers: 4xx refuse, all else is an error by failurePolicy, and the
// actions of bindings hold in both phases.
func TestPluginAnswers(t *testing.T) {
	forbidden := func(c *pluginapi.Call) error { return c.Forbid("no") }
	failing := func(*pluginapi.Call) error { return errors.New("broken") }
	mixed := func(c *pluginapi.Call) error { return errors.Join(c.Forbid("no"), errors.New("broken")) }
	tooMany := func(*pluginapi.Call) error { return apierrors.NewTooManyRequestsError("slower") }
	panicking := func(*pluginapi.Call) error { panic("lost") }
	const (
		deny, ignore = "failurePolicy: Fail", "failurePolicy: Ignore"
		warn         = "bindings: [{name: b, validationActions: [Warn]}]"
		no           = `pods "web" is forbidden: no`
		panicked     = "internal error: the evaluation panicked"
	)
	tests := map[string]struct {
		plugin               pluginFunc
		spec                 string
		wantCode             int32
		wantMessage, warning string
		wantMutating         int32 // code of the mutating phase
		wantChanged          bool
	}{
		"allowed":         {plugin: func(*pluginapi.Call) error { return nil }, spec: deny, wantChanged: true},
		"refused":         {plugin: forbidden, spec: deny, wantCode: 403, wantMessage: no, wantMutating: 403},
		"refused, warned": {plugin: forbidden, spec: warn, warning: "Validation failed for WebhookPolicy 'p' with binding 'b': " + no},
		"with its code":   {plugin: tooMany, spec: deny, wantCode: 429, wantMessage: "Too many requests: slower", wantMutating: 429},
		"several": {plugin: func(c *pluginapi.Call) error { return errors.Join(c.Forbid("no"), c.Forbid("never")) }, spec: deny, wantCode: 403,
			wantMessage: no + "\nWebhookPolicy 'p' denied request: pods \"web\" is forbidden: never", wantMutating: 403},
		"error":                {plugin: failing, spec: deny, wantCode: 422, wantMessage: "broken", wantMutating: 403},
		"error, Ignore":        {plugin: failing, spec: ignore},
		"refused and an error": {plugin: mixed, spec: deny, wantCode: 422, wantMessage: "broken", wantMutating: 403},
		"panic":                {plugin: panicking, spec: deny, wantCode: 422, wantMessage: panicked, wantMutating: 403},
		"panic, Ignore": {
			plugin:  panicking,
			spec:    ignore,
			warning: "WebhookPolicy 'p' did not evaluate this request: " + panicked,
		},
		"refused, Ignore": {plugin: forbidden, spec: ignore, wantCode: 403, wantMessage: no, wantMutating: 403},
		"warns and annotates": {
			plugin:      func(c *pluginapi.Call) error { c.Warn("mind"); c.Annotate("seen", "yes"); return nil },
			spec:        deny,
			warning:     "mind",
			wantChanged: true,
		},
		"configuration is wrong": {spec: deny, wantCode: 422, wantMessage: "spec.plugin: Internal error: wrong", wantMutating: 403},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := policyFrom(t, "p", "plugin: {name: Any}\n"+tc.spec)
			var c *Compiled
			if tc.plugin == nil {
				c, _ = sharedCompiler.CompilePlugin(p, nil, field.ErrorList{field.InternalError(field.NewPath("spec", "plugin"), errors.New("wrong"))})
			} else {
				c, _ = sharedCompiler.CompilePlugin(p, tc.plugin, nil)
			}
			group := NewGroup([]*Compiled{c})
			host := Environment{Now: time.Now, Namespaces: testNamespaces}
			request := podInput(t, admission.Create).review(t)

			response, err := group.Validate(t.Context(), request, host)
			if err != nil {
				t.Fatal(err)
			}
			code, message, warning := int32(0), "", ""
			if !response.Allowed {
				code, message = response.Result.Code, response.Result.Message[len("WebhookPolicy 'p' denied request: "):]
			}
			if len(response.Warnings) > 0 {
				warning = response.Warnings[0]
			}
			if code != tc.wantCode || message != tc.wantMessage || warning != tc.warning {
				t.Errorf("validating: %d %q, warning %q, want %d %q, warning %q", code, message, warning, tc.wantCode, tc.wantMessage, tc.warning)
			}

			response, err = group.Mutate(t.Context(), request, host)
			if err != nil {
				t.Fatal(err)
			}
			code = 0
			if !response.Allowed {
				code = response.Result.Code
			}
			if code != tc.wantMutating || len(response.Patch) > 0 != tc.wantChanged {
				t.Errorf("mutating: %d, patch %s, want %d, changed %t", code, response.Patch, tc.wantMutating, tc.wantChanged)
			}
		})
	}
}
