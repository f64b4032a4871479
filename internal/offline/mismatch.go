package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/nativeengine"
	"github.com/ostiary/ostiary/internal/truncate"
)

// maxLabels is the maximum of bytes of labels in a message.
const maxLabels = 200

// Mismatch returns why a policy is not evaluated for a request: the field of its rules or
// selectors that does not match, the exempt namespace, or its bindings. It returns "" if the
// policy is evaluated.
func (e *Engine) Mismatch(ctx context.Context, name string, request *admissionv1.AdmissionRequest, w *World) (string, error) {
	m := &matcher{evaluation: evaluation{engine: e, host: w.environment(), request: *request}, world: w}
	var err error
	if m.given, err = m.attributes(); err != nil {
		return "", err
	}
	p := e.policies[name]
	steps := []func(context.Context, *v1alpha1.WebhookPolicy) (string, error){m.ruled, m.exempt, m.guarded, m.selected, m.bound}
	for _, step := range steps {
		if why, err := step(ctx, p); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

// matcher finds out what does not match a request.
type matcher struct {
	evaluation
	world *World
	given admission.Attributes
}

// matches reports whether a part of matchResources matches attributes.
func (m *matcher) matches(a admission.Attributes, of *admissionregistrationv1.MatchResources, part admissionregistrationv1.MatchResources) (bool, error) {
	part.MatchPolicy = of.MatchPolicy
	if part.MatchPolicy == nil {
		part.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	matches, _, _, err := m.host.Matcher.Matches(a, m.host.Objects, nativeengine.Criteria{MatchResources: part})
	if err != nil {
		return false, fmt.Errorf("matching the request: %w", err)
	}
	return matches, nil
}

// ruled checks the rules of the policy.
func (m *matcher) ruled(_ context.Context, p *v1alpha1.WebhookPolicy) (string, error) {
	if p.Spec.MatchConstraints == nil || len(p.Spec.MatchConstraints.ResourceRules) == 0 {
		return "the policy has no rules", nil
	}
	return m.rules("spec.matchConstraints", p.Spec.MatchConstraints)
}

func (m *matcher) rules(field string, in *admissionregistrationv1.MatchResources) (string, error) {
	rules := admissionregistrationv1.MatchResources{ResourceRules: in.ResourceRules}
	if matches, err := m.matches(m.given, in, rules); matches || err != nil {
		return m.excluded(field, in, err)
	}
	var operations []string
	for _, o := range []admission.Operation{admission.Create, admission.Update, admission.Delete, admission.Connect} {
		matches, err := m.matches(withOperation{m.given, o}, in, rules)
		if err != nil {
			return "", err
		}
		if matches {
			operations = append(operations, string(o))
		}
	}
	if len(operations) > 0 {
		return fmt.Sprintf("%s.resourceRules match %s of %s, not %s", field, strings.Join(operations, " and "), m.resource(), m.given.GetOperation()), nil
	}
	var names []string
	unnamed := make([]admissionregistrationv1.NamedRuleWithOperations, len(in.ResourceRules))
	for i, r := range in.ResourceRules {
		names = append(names, r.ResourceNames...)
		unnamed[i].RuleWithOperations = r.RuleWithOperations
	}
	matches, err := m.matches(m.given, in, admissionregistrationv1.MatchResources{ResourceRules: unnamed})
	if matches {
		return fmt.Sprintf("%s.resourceRules match only the names %s", field, strings.Join(names, ", ")), nil
	}
	return fmt.Sprintf("%s.resourceRules do not match %s", field, m.resource()), err
}

// excluded checks the rules that exclude.
func (m *matcher) excluded(field string, in *admissionregistrationv1.MatchResources, err error) (string, error) {
	if err != nil || len(in.ExcludeResourceRules) == 0 {
		return "", err
	}
	matches, err := m.matches(m.given, in, admissionregistrationv1.MatchResources{ExcludeResourceRules: in.ExcludeResourceRules})
	if matches || err != nil {
		return "", err
	}
	return fmt.Sprintf("%s.excludeResourceRules match %s of %s", field, m.given.GetOperation(), m.resource()), nil
}

// resource writes the resource of the request, as "deployments.apps/scale".
func (m *matcher) resource() string {
	out := m.given.GetResource().GroupResource().String()
	if sub := m.given.GetSubresource(); sub != "" {
		out += "/" + sub
	}
	return out
}

type withOperation struct {
	admission.Attributes
	operation admission.Operation
}

// GetOperation implements admission.Attributes.
func (a withOperation) GetOperation() admission.Operation { return a.operation }

// exempt checks the exempt namespaces.
func (m *matcher) exempt(context.Context, *v1alpha1.WebhookPolicy) (string, error) {
	namespaces := append([]string{metav1.NamespaceSystem, corev1.NamespaceNodeLease}, m.engine.exempt...)
	if slices.Contains(namespaces, m.request.Namespace) {
		return fmt.Sprintf("the namespace %s is exempt from every policy", m.request.Namespace), nil
	}
	return "", nil
}

// guarded checks the conditions that keep API servers from calling Ostiary.
func (m *matcher) guarded(ctx context.Context, p *v1alpha1.WebhookPolicy) (string, error) {
	for _, h := range m.engine.hooks {
		if h.conditions == nil || h.policies == nil || !slices.Contains(h.policies.Names(), p.Name) {
			continue
		}
		if result := h.conditions.Match(ctx, m.versioned(m.given), nil, m.authorizer()); result.Error == nil && !result.Matches {
			return fmt.Sprintf("Ostiary is not called for %s", m.resource()), nil
		}
	}
	return "", nil
}

// selected checks the selectors of the policy.
func (m *matcher) selected(ctx context.Context, p *v1alpha1.WebhookPolicy) (string, error) {
	return m.selectors(ctx, "spec.matchConstraints", p.Spec.MatchConstraints)
}

func (m *matcher) selectors(ctx context.Context, field string, in *admissionregistrationv1.MatchResources) (string, error) {
	matches, err := m.matches(m.given, in, admissionregistrationv1.MatchResources{NamespaceSelector: in.NamespaceSelector})
	if err != nil {
		return "", err
	}
	if !matches {
		n, err := m.world.GetNamespace(ctx, m.request.Namespace)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s.namespaceSelector %q does not select the namespace %s with the labels %q", field, metav1.FormatLabelSelector(in.NamespaceSelector), n.Name, labelsIn(n.Labels)), nil
	}
	if matches, err = m.matches(m.given, in, admissionregistrationv1.MatchResources{ObjectSelector: in.ObjectSelector}); matches || err != nil {
		return "", err
	}
	return fmt.Sprintf("%s.objectSelector %q does not select the labels of the object", field, metav1.FormatLabelSelector(in.ObjectSelector)), nil
}

func labelsIn(set map[string]string) string {
	return truncate.String(labels.Set(set).String(), maxLabels)
}

// bound checks the bindings, of which one has to match and to have params.
func (m *matcher) bound(ctx context.Context, p *v1alpha1.WebhookPolicy) (string, error) {
	var reasons []string
	for i := range p.Spec.Bindings {
		why, err := m.binding(ctx, p, i)
		if why == "" || err != nil {
			return "", err
		}
		reasons = append(reasons, why)
	}
	return strings.Join(reasons, "; "), nil
}

func (m *matcher) binding(ctx context.Context, p *v1alpha1.WebhookPolicy, i int) (string, error) {
	b, field := &p.Spec.Bindings[i], fmt.Sprintf("spec.bindings[%d]", i)
	if b.MatchResources != nil {
		in := field + ".matchResources"
		if why, err := m.rules(in, b.MatchResources); why != "" || err != nil {
			return why, err
		}
		if why, err := m.selectors(ctx, in, b.MatchResources); why != "" || err != nil {
			return why, err
		}
	}
	if p.Spec.ParamKind == nil || b.ParamRef == nil {
		return "", nil
	}
	found, err := m.world.Params(ctx, p.Spec.ParamKind, b.ParamRef, m.request.Namespace)
	if err != nil || len(found) > 0 {
		return "", nil //nolint:nilerr // the evaluation reports the error
	}
	return fmt.Sprintf("%s.paramRef finds no %s, and parameterNotFoundAction is Allow", field, p.Spec.ParamKind.Kind), nil
}
