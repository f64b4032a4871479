package install

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type ruleGroups struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func rules(t *testing.T) ruleGroups {
	t.Helper()
	var object struct{ Spec ruleGroups }
	raw, err := os.ReadFile(root + "/config/components/prometheus/prometheus_rule.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(raw, &object))
	return object.Spec
}

type panels struct {
	Title  string
	Panels []struct {
		Title, Description, Type string
		ID                       int
		Targets                  []struct{ Expr, LegendFormat, RefID string }
	}
}

func dashboard(t *testing.T) (d panels) {
	t.Helper()
	raw, err := os.ReadFile(root + "/config/components/prometheus/dashboard.json")
	must(t, err)
	must(t, json.Unmarshal(raw, &d))
	return d
}

// TestAlerts has promtool play what each alert is for, and what it is not for.
func TestAlerts(t *testing.T) {
	raw, err := os.ReadFile(root + "/config/components/prometheus/prometheus_rule.yaml")
	must(t, err)
	var object struct{ Spec any }
	must(t, yaml.Unmarshal(raw, &object))
	plain, err := yaml.Marshal(object.Spec)
	must(t, err)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "rules.yaml"), plain, 0o600))
	tests, err := os.ReadFile("testdata/alerts.yaml")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(folder, "alerts.yaml"), tests, 0o600))
	if out, err := promtool(t, "test", "rules", filepath.Join(folder, "alerts.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	guide, err := os.ReadFile(root + "/docs/operations/monitoring.md")
	must(t, err)
	for _, group := range rules(t).Groups {
		for _, rule := range group.Rules {
			name := regexp.QuoteMeta(rule.Alert)
			fires := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n\s+- `)
			quiet := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts: \[\]`)
			if !fires.Match(tests) || !quiet.Match(tests) {
				t.Errorf("alert %s is not tested both firing and not", rule.Alert)
			}
			if !strings.Contains(string(guide), "### "+rule.Alert+"\n") {
				t.Errorf("docs/operations/monitoring.md does not say what to do about %s", rule.Alert)
			}
			if want := "docs/operations/monitoring.md#" + strings.ToLower(rule.Alert); !strings.HasSuffix(rule.Annotations["runbook_url"], want) {
				t.Errorf("alert %s leads to %q, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("alert %s has no severity, summary or description", rule.Alert)
			}
		}
	}
}

func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := newCommand(t, binary(t, "promtool"), args...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// Every panel says what it shows, once.
func TestDashboard(t *testing.T) {
	ids, titles := map[int]bool{}, map[string]bool{}
	for _, p := range dashboard(t).Panels {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("panel %d, %q, is there twice", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Type != "row" && (p.Description == "" || len(p.Targets) == 0) {
			t.Errorf("panel %q has no description or no query", p.Title)
		}
	}
}
