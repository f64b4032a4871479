package classic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/scalar"
)

// namespaces tests the namespace of the object, or the name of a Namespace.
func (m *ruleMatching) namespaces(patterns []string) ce.Expression {
	if len(patterns) == 0 {
		return ce.True()
	}
	namespace := ce.Term(`request.?namespace.orValue("")`)
	isNamespace := func(s servedKind) bool { return s.Group == "" && s.Kind == "Namespace" }
	name := m.object.Field("metadata").Field("name").Or(`""`)
	switch {
	case !slices.ContainsFunc(m.kinds, func(s servedKind) bool { return !isNamespace(s) }):
		namespace = name
	case slices.ContainsFunc(
		m.kinds,
		func(s servedKind) bool { return isNamespace(s) || strings.Contains(s.Kind, "*") },
	):
		kind := ce.Relate(ce.Term(m.object.Source().String()+".kind"), "==", ce.Quote("Namespace"))
		namespace = ce.Term("(" + ce.If(kind, name, namespace).String() + ")")
	}
	return matchAny(patterns, namespace)
}

// matchEntry tests a map for an entry; both parts may have wildcards.
func matchEntry(m ce.Place, key, value string) ce.Expression {
	if scalar.HasWildcard(key) {
		entries := m.Or("{}")
		each := ce.And(
			scalar.MatchWildcard(key, ce.Term("key")),
			scalar.MatchWildcard(value, ce.Term(entries.In(ce.Primary)+"[key]")),
		)
		return ce.Macro(entries, "exists", "key", each)
	}
	entry := m.Field(key)
	if strings.Trim(value, "*") == "" {
		return ce.And(entry.Present(), scalar.MatchWildcard(value, entry.Value()))
	}
	return scalar.MatchWildcard(value, entry.Or(`""`))
}

func (m *ruleMatching) selector(s *metav1.LabelSelector) (ce.Expression, error) {
	return selectorOf(s, m.object.Field("metadata").Field("labels"))
}

// selectorOf converts a label selector whose labels may have wildcards.
func selectorOf(s *metav1.LabelSelector, of ce.Place) (ce.Expression, error) {
	var all []ce.Expression
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, matchEntry(of, key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		label := of.Field(r.Key)
		switch r.Operator {
		case metav1.LabelSelectorOpExists:
			all = append(all, label.Present())
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, ce.Not(label.Present()))
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			e := labelIn(label, r.Values)
			if r.Operator == metav1.LabelSelectorOpNotIn {
				e = ce.Not(e)
			}
			all = append(all, e)
		default:
			return ce.False(), fmt.Errorf("the operator %q of a selector is not known", r.Operator)
		}
	}
	return ce.And(all...), nil
}

func labelIn(label ce.Place, values []string) ce.Expression {
	var literals []ce.Expression
	for _, v := range values {
		literals = append(literals, ce.Quote(v))
	}
	if slices.Contains(values, "") {
		return ce.And(label.Present(), scalar.OneOf(label.Value(), literals))
	}
	return scalar.OneOf(label.Or(`""`), literals)
}

// namespaceSelector tests the labels of the namespace. A Namespace never matches, and an
// object without a namespace has no labels.
func (m *ruleMatching) namespaceSelector(s *metav1.LabelSelector) (ce.Expression, error) {
	e, err := selectorOf(
		s,
		ce.VariablePlace("namespaceObject", ce.ShapeOfType[corev1.Namespace]()).Field("metadata").Field("labels"),
	)
	if err != nil {
		return e, err
	}
	if !slices.ContainsFunc(m.kinds, func(k servedKind) bool { return !k.namespaced }) {
		return e, nil
	}
	without := false
	if selector, err := metav1.LabelSelectorAsSelector(s); err == nil {
		without = selector.Matches(labels.Set{})
	}
	notNamespace := ce.Relate(ce.Term(m.object.Source().String()+".kind"), "!=", ce.Quote("Namespace"))
	hasNamespace := ce.Relate(ce.Term("namespaceObject"), "!=", ce.Term("null"))
	return ce.And(notNamespace, ce.If(hasNamespace, e, ce.Constant(without))), nil
}

// users tests the user of the request: roles, clusterRoles and subjects all have to match.
func (m *ruleMatching) users(f filter) (ce.Expression, error) {
	if len(f.Roles) > 0 {
		return ce.False(), fmt.Errorf(
			"roles is left out: the bindings of a user are not part of a request; name the subjects of the roles",
		)
	}
	all := ce.True()
	for _, role := range f.ClusterRoles {
		if role != "cluster-admin" || len(f.ClusterRoles) > 1 {
			return ce.False(), fmt.Errorf(
				"the cluster role %q is left out: the bindings of a user are not part of a request; name the "+
					"subjects of the role",
				role,
			)
		}
		m.notes = append(
			m.notes,
			"users with the cluster role cluster-admin are recognized by their permission for everything",
		)
		all = ce.Term(`authorizer.group("*").resource("*").check("*").allowed()`)
	}
	username := ce.Term("request.userInfo.username")
	var names []string
	var some []ce.Expression
	for _, s := range f.Subjects {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			names = append(names, "system:serviceaccount:"+s.Namespace+":"+s.Name)
		case rbacv1.UserKind:
			names = append(names, s.Name)
		case rbacv1.GroupKind:
			groups := ce.Term("request.userInfo.?groups.orValue([])")
			if scalar.HasWildcard(s.Name) {
				some = append(some, ce.Macro(groups, "exists", "group", scalar.MatchWildcard(s.Name, ce.Term("group"))))
			} else {
				some = append(some, ce.Relate(ce.Quote(s.Name), "in", groups))
			}
		default:
			return ce.False(), fmt.Errorf(
				"the subject kind %q is not known: write User, Group or ServiceAccount",
				s.Kind,
			)
		}
	}
	if len(names) > 0 {
		some = append([]ce.Expression{matchAny(names, username)}, some...)
	}
	if len(some) > 0 {
		all = ce.And(all, ce.Or(some...))
	}
	return all, nil
}
