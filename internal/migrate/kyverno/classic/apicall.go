package classic

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/api/v1alpha1"
	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// apiCall is a call of the API server, or of a service.
type apiCall struct {
	URLPath  string `json:"urlPath,omitempty"`
	Method   string `json:"method,omitempty"`
	Data     any    `json:"data,omitempty"`
	Service  any    `json:"service,omitempty"`
	JMESPath string `json:"jmesPath,omitempty"`
	Default  any    `json:"default,omitempty"`
}

// requestedObjects are the objects that a call reads.
type requestedObjects struct {
	schema.GroupVersionResource
	namespace string // empty is all namespaces, or none
	name      string // empty is a list
	only      string // the name of the only object of a list
}

// ruleLookup is a lookup whose value follows from what expressions read.
type ruleLookup struct {
	v1alpha1.Lookup
	element   *conditions.Reads
	stored    []string // the parts of the key of an object
	requested []string // the parts of the key of a request
	ofRequest bool     // the object of an UPDATE or a DELETE can be one of the objects
}

// reading is what a variable of a context reads of the API server.
type reading struct {
	name    string
	objects requestedObjects
	isList  bool     // objects are a list itself, not its field items
	paths   []string // one after the other, in JMESPath
	absent  any      // instead of an object that does not exist
}

// apiCall returns a scope with the variable of a call.
func (v *ruleConverter) apiCall(scope *conditions.Scope, name string, c *apiCall) (*conditions.Scope, error) {
	return v.call(scope, c, reading{name: name})
}

// call returns a scope with what is read of the response to a call.
func (v *ruleConverter) call(scope *conditions.Scope, c *apiCall, r reading) (*conditions.Scope, error) {
	switch {
	case c.Service != nil:
		return nil, r.leftOut("calls a service, and policies make no network calls", "use a backend")
	case c.Data != nil || c.Method != "" && !strings.EqualFold(c.Method, "GET"):
		return nil, r.leftOut("creates an object with Kyverno's rights", "use authorizer for a SubjectAccessReview")
	}
	var err error
	if r.objects, err = parsePath(c.URLPath); err != nil {
		return nil, r.leftOut(err.Error(), "use a lookup")
	}
	if c.JMESPath != "" {
		r.paths = append([]string{c.JMESPath}, r.paths...)
	}
	r.absent = c.Default
	return v.read(scope, r)
}

func (r *reading) leftOut(why, alternative string) error {
	return &leftOutError{"context", fmt.Sprintf("the variable %s %s", r.name, why), alternative}
}

// read returns a scope with the variable of what is read.
func (v *ruleConverter) read(scope *conditions.Scope, r reading) (*conditions.Scope, error) {
	var substituted []conditions.Value
	inner := scope.Collecting(&substituted)
	response, reads, err := v.response(inner, r)
	if err != nil {
		return nil, r.leftOut(err.Error(), "use a lookup")
	}
	failed := func(err error) (*conditions.Scope, error) {
		return nil, fmt.Errorf("context variable %s: %w", r.name, err)
	}
	value, parts := response, []*conditions.Reads{reads}
	for _, path := range r.paths {
		if value, err = inner.JMESPathOf(path, value); err != nil {
			return failed(err)
		}
		parts = inner.ReadBy(path, parts...)
	}
	if r.absent != nil {
		if value, err = v.orDefault(inner, value, r.absent); err != nil {
			return failed(err)
		}
	}
	if substituted, err = v.out.requireKeys(response, substituted); err != nil {
		return failed(err)
	}
	if r.objects.name != "" && r.absent == nil && response.IsLookup() { // an object that does not exist fails
		if source, err := response.Source(); err == nil {
			substituted = append(substituted, conditions.Failing(source))
		}
	}
	return scope.With(r.name, value.WithSubstituted(substituted)).WithReads(r.name, parts), nil
}

// requireKeys makes the keys of the last lookup fail if one of some values cannot be evaluated, as a call
// fails then. It returns what can fail: the lookup, and values that keys cannot read.
func (c *convertedRule) requireKeys(response conditions.Value, values []conditions.Value) (others []conditions.Value, err error) {
	last := len(c.lookups) - 1
	fails := false
	for _, v := range values {
		parts, err := conditions.FailingParts([]conditions.Value{v})
		if err != nil {
			return nil, err
		}
		isKey := last >= 0 && response.IsLookup()
		for _, p := range parts {
			isKey = isKey && isAboutRequest(p.String())
		}
		if !isKey {
			others = append(others, v)
			continue
		}
		l := c.lookups[last]
		fails = fails || len(parts) > 0
		for _, p := range parts {
			if !ce.AlwaysReads(l.RequestKeys, p.String()) {
				evaluated := ce.Relate(ce.Call(ce.List(p), "size"), ">", ce.Term("0")) // true, or a failure
				l.RequestKeys = ce.If(evaluated, ce.Term(l.RequestKeys), ce.List()).String()
			}
		}
	}
	if fails {
		others = append(others, conditions.Failing(ce.Term("lookups."+c.lookups[last].Name)))
	}
	return others, nil
}

// orDefault is the value of a call, or a default if the object is absent. A list is never absent.
func (v *ruleConverter) orDefault(scope *conditions.Scope, value conditions.Value, absent any) (conditions.Value, error) {
	last := len(v.out.lookups) - 1
	if last < 0 || !v.out.lookups[last].isOne() {
		return value, nil
	}
	found := ce.Relate(ce.Call(ce.Term("lookups."+v.out.lookups[last].Name), "size"), ">", ce.Term("0"))
	return scope.IfFound(found, value, absent)
}

// isOne reports whether the lookup is for one object.
func (l *ruleLookup) isOne() bool { return strings.Contains(l.StoredKeys, "stored.metadata.name") }

// parsePath parses the path of a call.
func parsePath(path string) (requestedObjects, error) {
	path, query, _ := strings.Cut(strings.TrimSpace(path), "?")
	o := requestedObjects{}
	if query != "" {
		if o.only, _ = strings.CutPrefix(query, "fieldSelector=metadata.name="); o.only == query || strings.Contains(o.only, "&") {
			return o, fmt.Errorf("has a query in its path, which lookups do not have")
		}
	}
	segments := splitPath(path)
	switch {
	case len(segments) > 2 && segments[0] == "api":
		o.Version, segments = segments[1], segments[2:]
	case len(segments) > 3 && segments[0] == "apis":
		o.Group, o.Version, segments = segments[1], segments[2], segments[3:]
	default:
		return o, fmt.Errorf("has a path that is none of objects")
	}
	if segments[0] == "namespaces" && len(segments) > 2 {
		o.namespace, segments = segments[1], segments[2:]
	}
	o.Resource = segments[0]
	switch {
	case strings.ContainsAny(o.Group+o.Version+o.Resource, "{}"):
		return o, fmt.Errorf("has a variable in the name of a resource")
	case len(segments) > 2:
		return o, fmt.Errorf("reads a subresource")
	case len(segments) == 2:
		o.name = segments[1]
	}
	return o, nil
}

// splitPath splits a path at slashes that are not in a variable.
func splitPath(path string) (segments []string) {
	depth, start := 0, 0
	for i, c := range path {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth == 0 {
				segments, start = append(segments, path[start:i]), i+1
			}
		}
	}
	segments = append(segments, path[start:])
	return slices.DeleteFunc(segments, func(s string) bool { return s == "" })
}

// isRequestNamespace reports whether a text is the namespace of the request.
func isRequestNamespace(text string) bool {
	inner, found := strings.CutPrefix(text, "{{")
	inner, closed := strings.CutSuffix(inner, "}}")
	inner = strings.TrimSpace(inner)
	return found && closed && (inner == "request.namespace" || inner == "request.object.metadata.namespace")
}

// isNamespaced reports whether all objects of the rule are in a namespace.
func (m *ruleMatching) isNamespaced() bool {
	return !slices.ContainsFunc(m.kinds, func(k servedKind) bool { return !k.namespaced && !k.custom || k.Kind == "*" })
}

// response returns what a call returns, and what is read of it.
func (v *ruleConverter) response(scope *conditions.Scope, r reading) (conditions.Value, *conditions.Reads, error) {
	o := r.objects
	namespace := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if o.GroupVersionResource == namespace && isRequestNamespace(o.name) && v.matching.isNamespaced() {
		s := ce.ShapeOfType[corev1.Namespace]()
		return conditions.Field(ce.ObjectPlace("namespaceObject", s)), &conditions.Reads{Shape: s}, nil
	}
	s := ce.Shape{}
	for _, k := range v.matching.catalogue {
		if k.GroupVersion() == o.GroupVersion() && k.resource == o.Resource {
			s = ce.ShapeOfKinds(k.GroupVersionKind)
		}
	}
	l, err := v.lookup(scope, r.name, o)
	if err != nil {
		return conditions.Value{}, nil, err
	}
	l.element = &conditions.Reads{Shape: s, Counted: true}
	if l = v.out.addLookup(l); o.name != "" {
		return conditions.Field(ce.ObjectPlace("lookups."+l.Name+"[0]", s)), l.element, nil
	}
	list := conditions.Field(ce.VariablePlace("lookups."+l.Name, ce.ShapeOfList(s)))
	if r.isList {
		return list, l.element, nil
	}
	if len(r.paths) > 0 {
		l.filter(scope.StoredFilterOf(r.paths[0], "stored", s))
	}
	return conditions.Members(map[string]conditions.Value{"items": list}), conditions.ReadsOfList(l.element), nil
}

// addLookup adds a lookup with a name that is unique in the rule.
func (c *convertedRule) addLookup(l *ruleLookup) *ruleLookup {
	name := l.Name
	for n := 2; slices.ContainsFunc(c.lookups, func(o *ruleLookup) bool { return o.Name == l.Name }); n++ {
		l.Name = fmt.Sprintf("%s%d", name, n)
	}
	c.lookups = append(c.lookups, l)
	return l
}

// lookup returns the lookup for some objects.
func (v *ruleConverter) lookup(scope *conditions.Scope, name string, o requestedObjects) (*ruleLookup, error) {
	l := &ruleLookup{Lookup: v1alpha1.Lookup{
		Name:     lookupName(name),
		Resource: v1alpha1.LookupResource{Group: o.Group, Version: o.Version, Resource: o.Resource},
		Scope:    v1alpha1.LookupScopeCluster, KeyErrors: v1alpha1.LookupKeyErrorsSkip,
	}}
	if name := strings.ToLower(o.Resource); name != o.Resource {
		v.notes = append(v.notes, fmt.Sprintf("the resource %s is read as %s: an API server does not find it", o.Resource, name))
		l.Resource.Resource = name
	}
	var stored, requested []string
	add := func(field, text string) error {
		value, err := scope.Text(text)
		if err != nil {
			return err
		}
		source := value.String()
		if !isAboutRequest(source) {
			return fmt.Errorf("has a path that depends on an element or on another lookup")
		}
		stored, requested = append(stored, "stored.metadata."+field), append(requested, source)
		return nil
	}
	switch {
	case isRequestNamespace(o.namespace) && v.matching.isNamespaced():
		l.Scope, l.KeyErrors = "", ""
	case v.policy.Kind == kindPolicy:
		return nil, fmt.Errorf("reads objects outside of the namespace of the policy")
	case o.namespace != "":
		if err := add("namespace", o.namespace); err != nil {
			return nil, err
		}
	}
	if name := cmp.Or(o.name, o.only); name != "" {
		if err := add("name", name); err != nil {
			return nil, err
		}
	}
	l.setKeys(stored, requested)
	l.ofRequest = slices.ContainsFunc(v.matching.rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.Resources, o.Resource) && slices.ContainsFunc(
			r.Operations, func(o admissionregistrationv1.OperationType) bool { return o != admissionregistrationv1.Create },
		)
	})
	return l, nil
}

// setKeys sets one key of stored objects, and one of requests, of several parts.
func (l *ruleLookup) setKeys(stored, requested []string) {
	l.stored, l.requested = stored, requested
	if len(stored) == 0 {
		stored, requested = []string{`"all"`}, []string{`"all"`}
	}
	l.StoredKeys = "[" + strings.Join(stored, ` + "/" + `) + "]"
	l.RequestKeys = "[" + strings.Join(requested, ` + "/" + `) + "]"
}

// filter leaves out objects that a filter leaves out anyway, so that fewer are found.
func (l *ruleLookup) filter(f conditions.StoredFilter) {
	stored, requested := l.stored, l.requested
	for i, r := range f.Requested {
		if isAboutRequest(r.String()) {
			stored, requested = append(stored, f.Stored[i].String()), append(requested, r.In(ce.Addition))
		}
	}
	l.setKeys(stored, requested)
	if !f.Where.IsTrue() {
		l.StoredKeys = ce.If(f.Where, ce.Term(l.StoredKeys), ce.List()).String()
	}
}

// lookupName returns a name for a lookup.
func lookupName(variable string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, variable)
	if !ce.IsVariable(name) {
		name = "found_" + name
	}
	return name
}

// isAboutRequest reports whether an expression reads only variables of the request.
func isAboutRequest(source string) bool {
	e, err := ce.Parse(source)
	if err != nil {
		return false
	}
	known := []string{"object", "oldObject", "request", "params", "variables", "namespaceObject"}
	return !slices.ContainsFunc(e.Free(), func(name string) bool { return !slices.Contains(known, name) })
}

// notes returns how a lookup differs from a call.
func (l *ruleLookup) notes() []string {
	note := fmt.Sprintf("%s is a lookup, which finds at most 1,000 %s", l.Name, l.Resource.Resource)
	if l.EffectiveScope() == v1alpha1.LookupScopeCluster {
		note += ", and leaves out those of which it needs more than 1 KiB"
	}
	if !l.ofRequest {
		return []string{note}
	}
	return []string{note, fmt.Sprintf("the lookup %s has no stored object of the request: Kyverno finds it for UPDATE and DELETE", l.Name)}
}

// finishLookups adds the values of the lookups, and removes those that no expression reads.
func (c *convertedRule) finishLookups() error {
	c.lookups = slices.DeleteFunc(c.lookups, func(l *ruleLookup) bool { return !c.reads("lookups." + l.Name) })
	for _, l := range c.lookups {
		if l.element.IsWhole() {
			return &leftOutError{
				"context",
				fmt.Sprintf("the rule reads whole %s, and a lookup keeps at most 1 KiB of each", l.Resource.Resource),
				"name the fields in jmesPath",
			}
		}
		l.Value = l.element.Value("stored")
		c.notes = append(c.notes, l.notes()...)
	}
	return nil
}

// reads reports whether an expression of the rule reads a variable.
func (c *convertedRule) reads(variable string) bool {
	p := &v1alpha1.WebhookPolicySpec{
		MatchConditions: c.conditions, Variables: c.variables, Validations: v1alpha1.ValidationsOf(c.validations),
		AuditAnnotations: c.annotations, Mutations: c.mutations,
	}
	pattern := regexp.MustCompile(regexp.QuoteMeta(variable) + `\b`)
	return slices.ContainsFunc(conversion.Expressions(p), pattern.MatchString)
}

// policyLookups returns the lookups of a policy.
func (c *convertedRule) policyLookups() (out []v1alpha1.Lookup) {
	for _, l := range c.lookups {
		out = append(out, l.Lookup)
	}
	return out
}
