package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// TestHealthOfArgoCD executes the health check that docs/operations/gitops.md shows, as Argo CD does,
// for policies in all states.
func TestHealthOfArgoCD(t *testing.T) {
	check := healthCheck(t)
	for name, tc := range map[string]struct{ policy, wantStatus, wantMessage string }{
		"a status without its default": {
			policy:      `{metadata: {generation: 1}}`,
			wantStatus:  "Progressing",
			wantMessage: "waiting for Ostiary",
		},
		"no status yet": {
			policy:      `{metadata: {generation: 1}, status: {observedGeneration: -1}}`,
			wantStatus:  "Progressing",
			wantMessage: "waiting for Ostiary",
		},
		"enforced": {
			policy: `{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Accepted, status: ` +
				`"True"}, {type: Ready, status: "True", message: enforced}]}}`,
			wantStatus:  "Healthy",
			wantMessage: "enforced",
		},
		"not reachable yet": {
			policy: `{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Ready, status: ` +
				`"False", message: wait}, {type: Reconciling, status: "True"}]}}`,
			wantStatus:  "Progressing",
			wantMessage: "wait",
		},
		"a wrong expression": {
			policy: `{metadata: {generation: 1}, status: {observedGeneration: 1, conditions: [{type: Ready, status: ` +
				`"False", message: fix it}, {type: Stalled, status: "True", message: x}]}}`,
			wantStatus:  "Degraded",
			wantMessage: "fix it",
		},
		"the generation before": {
			policy: `{metadata: {generation: 2}, status: {observedGeneration: 1, conditions: [{type: Ready, status: ` +
				`"True", message: enforced}]}}`,
			wantStatus:  "Progressing",
			wantMessage: "waiting for Ostiary",
		},
		"no conditions": {
			policy:      `{metadata: {generation: 1}, status: {observedGeneration: 1}}`,
			wantStatus:  "Progressing",
			wantMessage: "waiting for Ostiary",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var policy any
			if err := yaml.Unmarshal([]byte(tc.policy), &policy); err != nil {
				t.Fatal(err)
			}
			state := lua.NewState()
			defer state.Close()
			state.SetGlobal("obj", luaValue(state, policy))
			if err := state.DoString(check); err != nil {
				t.Fatal(err)
			}
			health := state.CheckTable(-1)
			got := []string{health.RawGetString("status").String(), health.RawGetString("message").String()}
			if diff := cmp.Diff([]string{tc.wantStatus, tc.wantMessage}, got); diff != "" {
				t.Errorf("health (-want +got):\n%s", diff)
			}
		})
	}
}

// healthCheck is the Lua script in the ConfigMap of the document.
func healthCheck(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/operations/gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml argocd-cm.yaml\n")
	manifest, _, _ := strings.Cut(rest, "```\n")
	var settings struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(manifest), &settings); err != nil {
		t.Fatal(err)
	}
	check := settings.Data["resource.customizations.health.admission.ostiary.dev_WebhookPolicy"]
	if check == "" {
		t.Fatal("the document shows no health check for WebhookPolicies")
	}
	return check
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, field := range value {
			table.RawSetString(key, luaValue(state, field))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, element := range value {
			table.Append(luaValue(state, element))
		}
		return table
	case float64:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	}
	return lua.LNil
}
