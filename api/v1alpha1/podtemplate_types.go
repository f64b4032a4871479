package v1alpha1

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodTemplates evaluates a policy for Pods also on the pod templates of workloads, such
// as Deployments.
type PodTemplates struct {
	// kinds are the workloads, instead of the default: deployments, statefulsets,
	// daemonsets, replicasets, jobs, cronjobs and replicationcontrollers. A resource with
	// several templates is named once for each. At most 50.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.all(k, self.exists_one(other, other.resource == k.resource && (has(other.group) ? other.group : '') == (has(k.group) ? k.group : '') && (has(other.templatePath) ? other.templatePath : '') == (has(k.templatePath) ? k.templatePath : '')))",reason=FieldValueDuplicate,message="name each template once"
	Kinds []PodTemplateKind `json:"kinds,omitempty"`

	// validationActions are the actions for a workload whose template fails a
	// validation, instead of those of the bindings. Default: those of the bindings.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=Deny;Warn;Audit
	// +kubebuilder:validation:XValidation:rule="!('Deny' in self && 'Warn' in self)",reason=FieldValueInvalid,message="remove Warn: Deny already sends the message to the client"
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions,omitempty"`
}

// PodTemplateKind is a resource with a pod template. The default kinds need only resource.
type PodTemplateKind struct {
	// group is the API group, such as argoproj.io; empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version of the objects in which templatePath is.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`

	// resource is the plural name, such as rollouts.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the plural name in lower case, such as rollouts"
	Resource string `json:"resource"`

	// templatePath is the path of the template, which has metadata and spec, such as
	// spec.template. At most 10 fields.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_-]*([.][A-Za-z_][A-Za-z0-9_-]*){0,9}$')",reason=FieldValueInvalid,message="write names of fields, separated by '.', such as spec.template"
	TemplatePath string `json:"templatePath,omitempty"`
}

// DefaultPodTemplateKinds returns the kinds of a policy that names none.
func DefaultPodTemplateKinds() []PodTemplateKind {
	const template = "spec.template"
	return []PodTemplateKind{
		{Group: "apps", Version: "v1", Resource: "deployments", TemplatePath: template},
		{Group: "apps", Version: "v1", Resource: "statefulsets", TemplatePath: template},
		{Group: "apps", Version: "v1", Resource: "daemonsets", TemplatePath: template},
		{Group: "apps", Version: "v1", Resource: "replicasets", TemplatePath: template},
		{Group: "batch", Version: "v1", Resource: "jobs", TemplatePath: template},
		{Group: "batch", Version: "v1", Resource: "cronjobs", TemplatePath: "spec.jobTemplate.spec.template"},
		{Group: "", Version: "v1", Resource: "replicationcontrollers", TemplatePath: template},
	}
}

// defaultKind returns the default kind that k names, and whether there is one.
func (k PodTemplateKind) defaultKind() (PodTemplateKind, bool) {
	for _, d := range DefaultPodTemplateKinds() {
		if d.Resource == k.Resource && (k.Group == d.Group || k.Group == "" && k.TemplatePath == "") {
			return d, true
		}
	}
	return PodTemplateKind{}, false
}

// Resolve returns the kind with all fields, and whether it is a default one.
func (k PodTemplateKind) Resolve() (resolved PodTemplateKind, isDefault bool) {
	d, ok := k.defaultKind()
	if !ok {
		return k, false
	}
	return PodTemplateKind{Group: d.Group, Version: cmp.Or(k.Version, d.Version), Resource: d.Resource, TemplatePath: cmp.Or(k.TemplatePath, d.TemplatePath)}, true
}

// TemplateKinds returns the kinds on whose pod templates the policy is evaluated; none
// without podTemplates.
func (s *WebhookPolicySpec) TemplateKinds() []PodTemplateKind {
	if s.PodTemplates == nil {
		return nil
	}
	if len(s.PodTemplates.Kinds) == 0 {
		return DefaultPodTemplateKinds()
	}
	out := make([]PodTemplateKind, len(s.PodTemplates.Kinds))
	for i, k := range s.PodTemplates.Kinds {
		out[i], _ = k.Resolve()
	}
	return out
}

// TemplateOperation returns the operation of Pods that decides whether matchConstraints
// match those of templates: CREATE if they match new Pods, else UPDATE, else "".
func (s *WebhookPolicySpec) TemplateOperation() admissionregistrationv1.OperationType {
	if s.MatchConstraints == nil {
		return ""
	}
	for _, op := range []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update} {
		if anyRuleMatchesPods(s.MatchConstraints.ResourceRules, op) && !anyRuleMatchesPods(s.MatchConstraints.ExcludeResourceRules, op) {
			return op
		}
	}
	return ""
}

func anyRuleMatchesPods(rules []admissionregistrationv1.NamedRuleWithOperations, op admissionregistrationv1.OperationType) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return len(r.ResourceNames) == 0 && // Pods of templates have no names
			(r.Scope == nil || *r.Scope != admissionregistrationv1.ClusterScope) &&
			hasOrAll(r.Operations, op) && hasOrAll(r.APIGroups, "") && hasOrAll(r.APIVersions, "v1") &&
			slices.ContainsFunc(r.Resources, func(entry string) bool {
				resource, sub, _ := strings.Cut(entry, "/")
				return (resource == "*" || resource == "pods") && (sub == "" || sub == "*")
			})
	})
}

func hasOrAll[S ~string](list []S, value S) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}

// TemplateSpec returns the spec that registers the policy for workloads with pod
// templates, nil if it is not evaluated on templates. Selectors of objects and match
// conditions are about Pods, so API servers cannot evaluate them.
func (s *WebhookPolicySpec) TemplateSpec() *WebhookPolicySpec {
	op := s.TemplateOperation()
	if s.PodTemplates == nil || op == "" {
		return nil
	}
	operations := []admissionregistrationv1.OperationType{admissionregistrationv1.Update} // a change of a template
	if op == admissionregistrationv1.Create {
		operations = append(operations, admissionregistrationv1.Create)
	}
	out := *s
	out.MatchConditions, out.AllowCriticalResources, out.Bindings = nil, false, slices.Clone(s.Bindings)
	out.MatchConstraints = &admissionregistrationv1.MatchResources{NamespaceSelector: s.MatchConstraints.NamespaceSelector, MatchPolicy: s.MatchConstraints.MatchPolicy}
	for _, k := range s.TemplateKinds() {
		out.MatchConstraints.ResourceRules = append(out.MatchConstraints.ResourceRules, k.rule(operations))
	}
	if len(out.Bindings) == 0 {
		out.Bindings = s.EffectiveBindings()
	}
	for i := range out.Bindings {
		b := &out.Bindings[i]
		if actions := s.PodTemplates.ValidationActions; len(actions) > 0 {
			b.ValidationActions = actions
		}
		if b.MatchResources != nil {
			b.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: b.MatchResources.NamespaceSelector}
		}
	}
	return &out
}

func (k PodTemplateKind) rule(operations []admissionregistrationv1.OperationType) admissionregistrationv1.NamedRuleWithOperations {
	scope := admissionregistrationv1.NamespacedScope
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{k.Group}, APIVersions: []string{k.Version}, Resources: []string{k.Resource}, Scope: &scope,
		},
	}}
}

// GroupVersionResource returns the resource of the kind.
func (k PodTemplateKind) GroupVersionResource() metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}
