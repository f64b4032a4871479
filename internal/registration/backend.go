package registration

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	// maxConditions is how many matchConditions the API server takes.
	maxConditions = 64

	// maxBackendName leaves room for what stands around a policy's name in
	// those of its configuration and its webhook.
	maxBackendName = 200

	// breakGlassName is of the matchCondition for breakGlass.
	breakGlassName = "may-not-break-glass"
)

// externalWebhook is what a webhook is called with that Ostiary does not host.
type externalWebhook struct {
	clientConfig admissionregistrationv1.WebhookClientConfig
	versions     []string
	conditions   []admissionregistrationv1.MatchCondition
}

// BackendPhase is the phase in which a backend is called.
func BackendPhase(b *v1alpha1.Backend) Phase {
	if b.Type == v1alpha1.BackendMutating {
		return PhaseMutate
	}
	return PhaseValidate
}

// WithBundle is the entry of a policy with a backend, whose certificate the API
// server is to verify with the bundle. Any other entry stays as it is.
func (e Entry) WithBundle(caBundle []byte) Entry {
	e.memberships = slices.Clone(e.memberships)
	for i := range e.memberships {
		if f := e.memberships[i].external; f != nil {
			trusting := *f
			trusting.clientConfig.CABundle = bytes.Clone(caBundle)
			e.memberships[i].external = &trusting
		}
	}
	return e
}

// newExternalMembership is a policy's part in the phase of its backend. Its settings hold
// the policy's name, so it shares its group with none, and the group is named
// after the policy alone, so that every change is made in place. DELETE is not
// left out in the mutating phase: the backend may refuse it, as natively.
func newExternalMembership(policy *v1alpha1.WebhookPolicy) membership {
	b := policy.Spec.Backend
	phase := BackendPhase(b)
	m := newMembership(policy, phase, plainRules(matchOf(&policy.Spec).ResourceRules, PhaseValidate))
	m.settings.SideEffects = b.SideEffects
	m.settings.Backend = policy.Name
	m.ordered = plainRules(matchOf(&policy.Spec).ResourceRules, PhaseValidate)
	m.key = canonicalJSON(m.settings)
	m.groupName = backendGroup(policy.Name)
	if phase == PhaseMutate {
		m.groupName = fmt.Sprintf("%04d-%s", *m.settings.Order, m.groupName)
	}
	m.external = &externalWebhook{
		clientConfig: backendClient(b),
		versions:     slices.Clone(b.AdmissionReviewVersions),
		conditions:   externalConditions(policy),
	}
	return m
}

// externalConditions are those of the policy. Ostiary is not asked about the
// requests, so the API server itself has to ask whether their users may skip
// the policy; where it gets no answer, they may not.
func externalConditions(policy *v1alpha1.WebhookPolicy) []admissionregistrationv1.MatchCondition {
	conditions := slices.Clone(policy.Spec.MatchConditions)
	if !policy.Spec.BreakGlass {
		return conditions
	}
	return append(conditions, admissionregistrationv1.MatchCondition{
		Name: breakGlassName,
		Expression: fmt.Sprintf("!authorizer.group('%s').resource('webhookpolicies').name('%s').check('breakglass').allowed()",
			v1alpha1.GroupName, policy.Name),
	})
}

// backendGroup has a hash instead of a name that is too long. No policy can be
// named so that its group is another's.
func backendGroup(policy string) string {
	if len(policy) <= maxBackendName {
		return "backend-" + policy
	}
	sum := sha256.Sum256([]byte(policy))
	return "long-backend-" + hex.EncodeToString(sum[:])
}

// backendClient sets what the API server would fill with a default.
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

// applyTo makes a webhook of Ostiary's the foreign one. The guards stay.
//
// API servers evaluate all conditions, and refuse the request where they cost too
// much together. What the author wrote is therefore not evaluated in namespaces
// that a condition exempts. It may end with a comment.
func (f *externalWebhook) applyTo(w *webhook, g *guards) {
	f.clientConfig.DeepCopyInto(&w.ClientConfig)
	w.AdmissionReviewVersions = slices.Clone(f.versions)
	guarded := slices.ContainsFunc(w.Rules, labelsUntrusted)
	for _, c := range f.conditions {
		if guarded {
			c.Expression = "!(" + g.exemptExpression() + ") || (" + c.Expression + "\n)"
		}
		w.MatchConditions = append(w.MatchConditions, c)
	}
}

// Bundles are the CA bundles of webhooks, by their names.
type Bundles map[string][]byte

// ObservedBundles are the bundles that configurations hold.
func ObservedBundles(observed []Configuration) Bundles {
	out := Bundles{}
	for _, config := range observed {
		for _, w := range Webhooks(config) {
			out[w.Name] = w.ClientConfig.CABundle
		}
	}
	return out
}

// Of is the bundle of the backend of an entry's policy, nil where there is none.
func (b Bundles) Of(e Entry) []byte {
	for i := range e.memberships {
		if m := &e.memberships[i]; m.external != nil {
			return b[m.groupName+m.settings.Phase.webhookDomain()]
		}
	}
	return nil
}

// checkBackend refuses what the API server would refuse in a webhook
// configuration, and what nobody would evaluate.
func checkBackend(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	b := spec.Backend
	if b == nil {
		return nil
	}
	errs := append(checkBackendFields(spec, at), checkConditions(spec, at.Child("matchConditions"))...)
	at = at.Child("backend")
	switch {
	case (b.Service == nil) == (b.URL == ""):
		errs = append(errs, field.Invalid(at, "", "set either service or url"))
	case b.URL != "":
		errs = append(errs, checkBackendURL(b.URL, at.Child("url"))...)
	}
	return errs
}

func checkBackendFields(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	errs := forbidFields(at, "the backend alone decides", []fieldUse{
		{"mutations", len(spec.Mutations) > 0},
		{"validations", len(spec.Validations) > 0},
		{"auditAnnotations", len(spec.AuditAnnotations) > 0},
		{"bindings", len(spec.Bindings) > 0},
		{"paramKind", spec.ParamKind != nil},
		{"variables", len(spec.Variables) > 0},
	})
	at = at.Child("matchConstraints")
	match := matchOf(spec)
	if len(match.ExcludeResourceRules) > 0 {
		errs = append(errs, field.Forbidden(at.Child("excludeResourceRules"), "write what the backend is not called for as a matchCondition: a webhook has no such rules"))
	}
	for i := range match.ResourceRules {
		if len(match.ResourceRules[i].ResourceNames) > 0 {
			errs = append(errs, field.Forbidden(at.Child("resourceRules").Index(i).Child("resourceNames"), "write the names as a matchCondition on request.name: a webhook has none"))
		}
	}
	return errs
}

// fieldUse is a field that may be used beside what decides.
type fieldUse struct {
	name string
	used bool
}

func forbidFields(at *field.Path, why string, fields []fieldUse) field.ErrorList {
	var errs field.ErrorList
	for _, f := range fields {
		if f.used {
			errs = append(errs, field.Forbidden(at.Child(f.name), "remove "+f.name+": "+why))
		}
	}
	return errs
}

// checkPlugin refuses what nobody would evaluate.
func checkPlugin(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	if spec.Plugin == nil {
		return nil
	}
	return forbidFields(at, "the plugin alone decides", []fieldUse{
		{"mutations", len(spec.Mutations) > 0},
		{"validations", len(spec.Validations) > 0},
		{"auditAnnotations", len(spec.AuditAnnotations) > 0},
		{"paramKind", spec.ParamKind != nil},
		{"backend", spec.Backend != nil},
	})
}

// checkConditions leaves room for those that Ostiary adds.
func checkConditions(spec *v1alpha1.WebhookPolicySpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range spec.MatchConditions {
		if c.Name == guardName || c.Name == exemptName || c.Name == conditionName || c.Name == breakGlassName {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), c.Name, "choose another name: Ostiary has a condition of this name"))
		}
	}
	added := len((&guards{critical: allowedCritical(spec)}).conditions(plainRules(matchOf(spec).ResourceRules, PhaseValidate)))
	if spec.BreakGlass {
		added++
	}
	if n := len(spec.MatchConditions); n+added > maxConditions {
		errs = append(errs, field.TooMany(at, n, maxConditions-added))
	}
	return errs
}

func checkBackendURL(raw string, at *field.Path) field.ErrorList {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "" {
		// Neither the value nor the parser's error, which may hold a password.
		return field.ErrorList{field.Forbidden(at, "write url as https://host[:port]/path: the API server calls nothing else")}
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return field.ErrorList{field.Forbidden(at, "remove user, query and fragment from url: the API server refuses them")}
	}
	return nil
}

func matchOf(spec *v1alpha1.WebhookPolicySpec) *admissionregistrationv1.MatchResources {
	return cmp.Or(spec.MatchConstraints, &admissionregistrationv1.MatchResources{})
}
