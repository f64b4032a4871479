package celpolicies

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// kyvernoNames are the free identifiers that only the CEL of Kyverno has: variables, and
// namespaces of functions.
func kyvernoNames() map[string]string {
	network := "policies of Ostiary call no servers"
	registry := "policies of Ostiary read no registries"
	return map[string]string{
		"resource":      "policies of Ostiary read only params",
		"http":          network,
		"globalContext": network, "globalcontext": network,
		"images": "the CEL of Kubernetes has no images of Kyverno", "image": registry, "imageData": registry,
		"attestors": registry, "attestations": registry,
		"generator": "Ostiary creates no objects",
		"hash":      noFunction,
		"json":      noFunction,
		"yaml":      noFunction,
		"math":      noFunction,
		"x509":      noFunction,
		"gzip":      noFunction,
		"base64":    noFunction, "time": noFunction, "transform": noFunction, "random": noFunction, "user": noFunction,
	}
}

const noFunction = "the CEL of Kubernetes has no such function"

// kyvernoFunctions are the functions without a namespace.
func kyvernoFunctions() []string {
	return []string{
		"image",
		"isImage",
		"parseImageReference",
		"parseServiceAccount",
		"md5",
		"sha1",
		"sha256",
		"random",
		"listObjToMap",
	}
}

// eachExpression calls a function for every expression of the policy; variables come first.
func (b *builder) eachExpression(visit func(field string, text *string)) {
	s := &b.policy.Spec
	for i := range s.Variables {
		visit(fmt.Sprintf("spec.variables[%d].expression", i), &s.Variables[i].Expression)
	}
	for i := range s.MatchConditions {
		visit(fmt.Sprintf("spec.matchConditions[%d].expression", i), &s.MatchConditions[i].Expression)
	}
	for i := range s.Validations {
		visit(fmt.Sprintf("spec.validations[%d].expression", i), &s.Validations[i].Expression)
		visit(fmt.Sprintf("spec.validations[%d].messageExpression", i), &s.Validations[i].MessageExpression)
	}
	for i := range s.AuditAnnotations {
		visit(fmt.Sprintf("spec.auditAnnotations[%d].valueExpression", i), &s.AuditAnnotations[i].ValueExpression)
	}
	for i := range s.Mutations {
		if a := s.Mutations[i].ApplyConfiguration; a != nil {
			visit(fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i), &a.Expression)
		}
		if p := s.Mutations[i].JSONPatch; p != nil {
			visit(fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i), &p.Expression)
		}
	}
}

// expressions converts all expressions.
func (b *builder) expressions() {
	variables := map[string]string{}
	for _, v := range b.policy.Spec.Variables {
		variables[v.Name] = v.Expression
	}
	b.eachExpression(func(field string, text *string) { b.expression(field, text, variables) })
}

// expression rewrites one expression.
func (b *builder) expression(field string, text *string, variables map[string]string) {
	if *text == "" {
		return
	}
	changed := celtext.WithoutBind(*text)
	changed = b.params(field, changed)
	if !strings.HasPrefix(field, "spec.mutations") { // where the CEL of Kubernetes has the function
		changed = withoutEscapeKey(changed)
	}
	changed, err := celtext.WithoutPlainOrValue(changed, variables)
	if err != nil {
		b.leaveOut(field, err.Error(), "write the expression without it")
		return
	}
	e, err := celtext.Parse(changed)
	if err != nil {
		b.leaveOut(field, err.Error(), "correct it in the source")
		return
	}
	b.kyvernoOnly(field, e)
	if *text != changed {
		b.unlike("the CEL of Kyverno evaluates " + field + " in another way than that of Kubernetes")
	}
	*text = changed
}

// withoutEscapeKey replaces calls of jsonpatch.escapeKey with a constant by the result.
func withoutEscapeKey(text string) string {
	return celtext.ReplaceCalls(text, func(c celtext.ParsedCall) (string, bool) {
		if c.Name != "jsonpatch.escapeKey" || len(c.Arguments) != 1 {
			return "", false
		}
		key, ok := c.Arguments[0].(string)
		return celtext.QuoteText(strings.NewReplacer("~", "~0", "/", "~1").Replace(key)), ok
	})
}

// kyvernoOnly leaves out what only the CEL of Kyverno has, by name.
func (b *builder) kyvernoOnly(field string, e *celtext.Parsed) {
	names := kyvernoNames()
	var found []string
	add := func(name, why string) {
		if !slices.Contains(found, name) {
			found = append(found, name)
			b.leaveOut(field, fmt.Sprintf("%s: %s", name, why), "write a policy without it")
		}
	}
	free := e.Free()
	for _, c := range e.Calls() {
		namespace, _, _ := strings.Cut(c.Name, ".")
		switch why, ok := names[namespace]; {
		case ok && namespace != c.Name && slices.Contains(free, namespace):
			add(c.Name, why)
			free = slices.DeleteFunc(free, func(name string) bool { return name == namespace })
		case slices.Contains(kyvernoFunctions(), c.Name):
			add(c.Name, noFunction)
		}
	}
	for _, name := range free {
		if why, ok := names[name]; ok {
			add(name, why)
		}
	}
}

// params replaces resource.Get of one ConfigMap with a constant name by the params of the
// policy.
func (b *builder) params(field, text string) string {
	return celtext.ReplaceCalls(text, func(c celtext.ParsedCall) (string, bool) {
		ref, ok := b.configMap(c)
		if !ok {
			return "", false
		}
		binding := &b.policy.Spec.Bindings[0]
		if other := binding.ParamRef; other != nil && (other.Name != ref.Name || other.Namespace != ref.Namespace) {
			return "", false // kyvernoOnly reports it
		}
		if binding.ParamRef == nil {
			b.change(
				field,
				fmt.Sprintf(
					"the ConfigMap %s/%s is read as params: let Ostiary read it; without it failurePolicy applies "+
						"to all requests",
					ref.Namespace,
					ref.Name,
				),
			)
		}
		b.policy.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
		binding.ParamRef = ref
		return "params", true
	})
}

// configMap returns the ConfigMap that a call gets. Namespaced policies name no namespace.
func (b *builder) configMap(c celtext.ParsedCall) (*admissionregistrationv1.ParamRef, bool) {
	if c.Name != "resource.Get" {
		return nil, false
	}
	args := make([]string, len(c.Arguments))
	for i, a := range c.Arguments {
		text, ok := a.(string)
		if !ok {
			return nil, false
		}
		args[i] = text
	}
	if strings.HasPrefix(b.Source.Kind, "Namespaced") && len(args) == 3 {
		namespace := b.Source.Metadata.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		args = []string{args[0], args[1], namespace, args[2]}
	}
	if len(args) != 4 || args[0] != "v1" || args[1] != "configmaps" || args[2] == "" || args[3] == "" {
		return nil, false
	}
	return &admissionregistrationv1.ParamRef{
		Namespace:               args[2],
		Name:                    args[3],
		ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
	}, true
}
