package classic

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// podSecurity makes a rule the plugin PodSecurity. Its exemptions are users, namespaces and
// classes: a rule that excludes controls is left out, with their names.
func (v *ruleConverter) podSecurity(s *podSecurityStandard) error {
	if len(s.Exclude) > 0 {
		return &leftOutError{"validate.podSecurity.exclude",
			"the plugin PodSecurity excludes no controls, and the rule excludes " + describeExclusions(s.Exclude),
			"use the policies of Ostiary's library for the controls of the level, except " + strings.Join(
				libraryPolicies(s),
				", ",
			)}
	}
	if v.out.paramRef != nil {
		if v.readsConfigMap() {
			return &leftOutError{"context", "a plugin has no params", "write the rule in CEL"}
		}
		v.out.paramKind, v.out.paramRef = nil, nil
	}
	if err := v.podSecurityKinds(); err != nil {
		return err
	}
	v.out.podSecurity, v.out.ratchet = s, false
	v.notes = append(
		v.notes,
		"labels of a namespace for the Pod Security Standards replace the level of the rule, as for the plugin of "+
			"the API server",
		"an UPDATE of a Pod passes if it changes nothing that the plugin checks again",
	)
	if c := v.rule.Validate; c.AllowExistingViolations == nil || *c.AllowExistingViolations {
		v.notes = append(v.notes, "another UPDATE is denied also if the stored object fails the level")
	}
	return nil
}

// readsConfigMap reports whether preconditions may read a ConfigMap of the context. Kyverno reads one only if
// they do.
func (v *ruleConverter) readsConfigMap() bool {
	conditions := []any{v.rule.CELPreconditions}
	if p := v.rule.Preconditions; p != nil {
		conditions = append(conditions, p.Block, p.list)
	}
	text, err := json.Marshal(conditions)
	return err != nil || v.out.reads("params") || slices.ContainsFunc(v.rule.Context, func(e contextEntry) bool {
		return strings.Contains(string(text), e.Name)
	})
}

// podSecurityKinds makes the workloads that a rule names beside Pods workloads whose templates
// it checks, because the plugin enforces a level for Pods only.
func (v *ruleConverter) podSecurityKinds() error {
	const field = "match"
	pods := false
	for _, k := range v.matching.kinds {
		switch {
		case k.Kind == "Pod":
			pods = true
		case controllerResources()[k.Kind] == "" || strings.Contains(k.resource, "/"):
			why := "the plugin PodSecurity enforces a level for Pods and pod templates, and the rule matches " + k.Kind
			return &leftOutError{field, why, "name Pods and workloads only"}
		case !slices.Contains(v.out.templates, k.Kind):
			v.out.templates = append(v.out.templates, k.Kind)
		}
	}
	if !pods {
		return &leftOutError{
			field,
			"the plugin PodSecurity also decides about Pods, and the rule matches only workloads",
			"add Pod to the kinds",
		}
	}
	if len(v.out.templates) == 0 {
		return nil
	}
	if readsObject(v.matching.match.String() + v.matching.exclude.String()) {
		return &leftOutError{
			field,
			"the rule selects workloads by a field, and pod templates do not have those of the workload",
			"use two rules: one for Pods, and one in CEL for workloads",
		}
	}
	for i := range v.out.rules {
		r := &v.out.rules[i]
		isPod := func(resource string) bool { return strings.HasPrefix(resource, "pods") }
		r.Resources = slices.DeleteFunc(
			slices.Clone(r.Resources),
			func(resource string) bool { return !isPod(resource) },
		)
	}
	v.out.rules = slices.DeleteFunc(v.out.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return len(r.Resources) == 0
	})
	return nil
}

// describeExclusions describes exclusions: the controls, and to what they apply.
func describeExclusions(exclusions []exclusion) string {
	texts := make([]string, len(exclusions))
	for i, e := range exclusions {
		var limits []string
		if len(e.Images) > 0 {
			limits = append(limits, "for the images "+strings.Join(e.Images, ", "))
		}
		if e.RestrictedField != "" {
			limits = append(limits, fmt.Sprintf("in %s the values %s", e.RestrictedField, strings.Join(e.Values, ", ")))
		}
		if texts[i] = e.ControlName; len(limits) > 0 {
			texts[i] += " (" + strings.Join(limits, "; ") + ")"
		}
	}
	return strings.Join(texts, ", ")
}

// libraryControls are the policies of Ostiary's library for the controls of the Pod Security
// Standards, by the name of the control in lower case.
func libraryControls() map[string][]string {
	return map[string][]string{
		"hostprocess": {
			"baseline-windows-host-process",
		}, "host namespaces": {"baseline-host-namespaces"}, "privileged containers": {"baseline-privileged"},
		"capabilities": {
			"baseline-capabilities",
			"restricted-capabilities",
		}, "hostpath volumes": {"baseline-host-paths"}, "host ports": {"baseline-host-ports"},
		"host probes / lifecycle hooks": {
			"baseline-host-probes",
		}, "apparmor": {"baseline-apparmor"}, "selinux": {"baseline-selinux"},
		"/proc mount type": {
			"baseline-proc-mount",
			"restricted-proc-mount",
		}, "seccomp": {"baseline-seccomp", "restricted-seccomp"}, "sysctls": {"baseline-sysctls"},
		"volume types": {"restricted-volume-types"}, "privilege escalation": {"restricted-privilege-escalation"},
		"running as non-root": {"restricted-non-root"}, "running as non-root user": {"restricted-run-as-user"},
	}
}

// libraryPolicies returns the policies of the library for the controls that a rule excludes.
// The level baseline has only some of them.
func libraryPolicies(s *podSecurityStandard) (out []string) {
	for _, e := range s.Exclude {
		names := libraryControls()[strings.ToLower(e.ControlName)]
		if len(names) == 0 {
			names = []string{"that for " + e.ControlName}
		}
		for _, name := range names {
			if !slices.Contains(out, name) && (s.Level != "baseline" || !strings.HasPrefix(name, "restricted-")) {
				out = append(out, name)
			}
		}
	}
	return out
}

// podSecurityPlugin returns the plugin with the level of a rule.
func podSecurityPlugin(s *podSecurityStandard) *v1alpha1.Plugin {
	version := s.Version
	if version == "" {
		version = "latest"
	}
	raw, _ := json.Marshal(map[string]any{"defaults": map[string]any{"enforce": s.Level, "enforce-version": version}})
	return &v1alpha1.Plugin{Name: v1alpha1.PluginPodSecurity, Config: &runtime.RawExtension{Raw: raw}}
}
