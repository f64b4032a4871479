package registration

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unique"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/guard"
)

const (
	// maxBackendName is the maximum length of a policy's name in the names of its
	// configuration and webhook. It leaves room for their prefixes and suffixes.
	maxBackendName = 200

	// reservedSuffix ends names that API servers reserve since Kubernetes 1.37, for
	// configurations in files (ManifestBasedAdmissionControlConfig).
	reservedSuffix = ".static.k8s.io"
)

// externalWebhook is the part of a webhook that is different for a backend.
type externalWebhook struct {
	clientConfig admissionregistrationv1.WebhookClientConfig
	versions     []string
	conditions   []admissionregistrationv1.MatchCondition
}

// BackendPhase returns the phase in which a backend is called.
func BackendPhase(b *v1alpha1.Backend) Phase {
	if b.Type == v1alpha1.BackendMutating {
		return PhaseMutate
	}
	return PhaseValidate
}

// WithBundle returns the entry with another CA bundle for the policy's backend. It
// has no effect for policies without a backend.
func (e Entry) WithBundle(caBundle []byte) Entry {
	e.memberships = slices.Clone(e.memberships)
	for i := range e.memberships {
		if w := e.memberships[i].external; w != nil {
			updated := *w
			updated.clientConfig.CABundle = bytes.Clone(caBundle)
			e.memberships[i].external = &updated
		}
	}
	return e
}

// newExternalMembership returns the membership of a policy with a backend. Its
// settings contain the policy's name, so it never shares a group, and the group is
// named after the policy alone, so that changes update it in place. Its rules keep
// DELETE in the mutating phase: a mutating webhook can deny deletions.
func newExternalMembership(policy *v1alpha1.WebhookPolicy) membership {
	b := policy.Spec.Backend
	phase := BackendPhase(b)
	rules := plainRules(matchOf(&policy.Spec).ResourceRules, PhaseValidate)
	s := settingsOf(&policy.Spec, phase, rules)
	s.SideEffects = b.SideEffects
	s.Backend = policy.Name
	s.ordered = true
	m := newMembership(policy, rules, s, "")
	name := backendGroup(policy.Name)
	if phase == PhaseMutate {
		name = fmt.Sprintf("%04d-%s", policy.Spec.EffectiveOrder(), name)
	}
	m.group = unique.Make(groupID{key: m.key(), name: name})
	m.external = &externalWebhook{
		clientConfig: backendClient(b),
		versions:     slices.Clone(b.AdmissionReviewVersions),
		conditions:   externalConditions(policy),
	}
	return m
}

// externalConditions returns the matchConditions of a backend's webhook: those of
// the policy, and one for breakGlass. Ostiary does not receive the requests, so the
// API server checks whether their users may skip the policy. If this check fails,
// they may not.
func externalConditions(policy *v1alpha1.WebhookPolicy) []admissionregistrationv1.MatchCondition {
	conditions := slices.Clone(policy.Spec.MatchConditions)
	if !policy.Spec.BreakGlass {
		return conditions
	}
	return append(conditions, admissionregistrationv1.MatchCondition{
		Name: guard.BreakGlassCondition,
		Expression: fmt.Sprintf("!authorizer.group('%s').resource('webhookpolicies').name('%s').check('breakglass').allowed()",
			v1alpha1.GroupName, policy.Name),
	})
}

// backendGroup returns the name of a backend's group. A policy name that is too long, or
// that API servers would reject, is replaced with a hash. Different policies have
// different groups.
func backendGroup(policy string) string {
	if len(policy) <= maxBackendName && !strings.HasSuffix(policy, reservedSuffix) {
		return "backend-" + policy
	}
	sum := sha256.Sum256([]byte(policy))
	return "long-backend-" + hex.EncodeToString(sum[:])
}

// backendClient returns the clientConfig of a backend. It sets every field that
// the API server would set to a default.
func backendClient(b *v1alpha1.Backend) admissionregistrationv1.WebhookClientConfig {
	client := admissionregistrationv1.WebhookClientConfig{CABundle: bytes.Clone(b.CABundle)}
	if b.Service == nil {
		client.URL = new(b.URL)
		return client
	}
	client.Service = &admissionregistrationv1.ServiceReference{
		Namespace: b.Service.Namespace, Name: b.Service.Name, Port: new(b.Service.EffectivePort()),
	}
	if b.Service.Path != "" {
		client.Service.Path = new(b.Service.Path)
	}
	return client
}

// applyTo changes a webhook to the external one. The guards stay.
//
// API servers evaluate all matchConditions, and deny the request if their total
// cost is too high. In exempt namespaces, the policy's conditions are therefore not
// evaluated, if a match condition excludes these namespaces.
func (e *externalWebhook) applyTo(w *webhook, g *guards) {
	e.clientConfig.DeepCopyInto(&w.ClientConfig)
	w.AdmissionReviewVersions = slices.Clone(e.versions)
	guarded := slices.ContainsFunc(w.Rules, guard.LabelsUntrusted)
	for _, c := range e.conditions {
		if guarded { // the line feed ends a comment of the expression
			c.Expression = "!(" + guard.ExemptExpression(g.exempt) + ") || (" + c.Expression + "\n)"
		}
		w.MatchConditions = append(w.MatchConditions, c)
	}
}

// Bundles are CA bundles by the name of the webhook.
type Bundles map[string][]byte

// ObservedBundles returns the CA bundles in configurations.
func ObservedBundles(observed []Configuration) Bundles {
	out := Bundles{}
	for _, config := range observed {
		for _, w := range Webhooks(config) {
			out[w.Name] = w.ClientConfig.CABundle
		}
	}
	return out
}

// Of returns the CA bundle for the backend of an entry's policy, nil if there is none.
func (b Bundles) Of(e Entry) []byte {
	for i := range e.memberships {
		if m := &e.memberships[i]; m.external != nil {
			return b[m.webhookName(m.groupName())]
		}
	}
	return nil
}
