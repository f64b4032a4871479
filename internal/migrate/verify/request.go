package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/offline"
	"github.com/ostiary/ostiary/internal/policytest/v1alpha1"
)

// valuesFor returns the values for a rule of a policy and an object. Those of the object count
// more than those of the rule, and these more than global ones.
func (v *kyvernoValues) valuesFor(policy, rule, object string) map[string]any {
	out := map[string]any{}
	maps.Copy(out, v.GlobalValues)
	for _, p := range v.Policies {
		if p.Name != policy {
			continue
		}
		for _, r := range p.Rules {
			if r.Name == rule {
				maps.Copy(out, r.Values)
			}
		}
		for _, r := range p.Resources {
			if r.Name == object {
				maps.Copy(out, r.Values)
			}
		}
	}
	return out
}

// request adds the request of the values to an assertion.
func (in *kyvernoInputs) request(a *assertion, given map[string]any) error {
	object := a.object
	operation, _ := given["request.operation"].(string)
	switch operation {
	case "UPDATE":
		a.old, a.createdOnly = object, true
	case "DELETE":
		a.old, a.object = object, nil
	}
	if err := a.addParams(dataOf(given)); err != nil {
		return err
	}
	namespace := object.Metadata.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	user := in.user.UserInfo
	if name, ok := given["request.userInfo.username"].(string); ok {
		user.Username = name
	}
	a.change = func(c *v1alpha1.Case) {
		c.Operation = operation
		c.User = user.Username
		c.Groups = user.Groups
		c.Authorizer = in.authorizer(a)
		for _, n := range in.values.NamespaceSelector {
			if n.Name == namespace && object.Kind != "Namespace" {
				c.Namespace = &v1alpha1.Namespace{Labels: n.Labels}
			}
		}
		for i := range in.values.Namespaces {
			if n := &in.values.Namespaces[i]; n.Name == namespace {
				c.Namespace = &v1alpha1.Namespace{Labels: n.Labels, Annotations: n.Annotations}
			}
		}
	}
	return nil
}

// authorizer answers whether the user may do everything, as the ClusterRole cluster-admin
// allows. No other role is converted.
func (in *kyvernoInputs) authorizer(a *assertion) []offline.Answer {
	for _, o := range a.outputs {
		for _, m := range o.Policy().Spec.MatchConditions {
			if !strings.Contains(m.Expression, "authorizer.") {
				continue
			}
			answer := offline.Answer{Verb: "*", Group: "*", Resource: "*", Decision: offline.NoOpinion}
			for _, role := range in.user.ClusterRoles {
				if role == "cluster-admin" {
					answer.Decision = offline.Allow
				}
			}
			return []offline.Answer{answer}
		}
	}
	return nil
}

// dataOf returns the data of ConfigMaps in the variables of a context, as
// "dictionary.data.key".
func dataOf(given map[string]any) map[string]string {
	out := map[string]string{}
	for name, value := range given {
		variable, key, found := strings.Cut(name, ".data.")
		if !found || variable == "" || strings.Contains(variable, ".") {
			continue
		}
		text, ok := value.(string)
		if !ok {
			raw, err := json.Marshal(value)
			if err != nil {
				continue
			}
			text = string(raw)
		}
		out[strings.Trim(key, `"`)] = text
	}
	return out
}

// addParams adds the ConfigMap that the policies read with some data.
func (a *assertion) addParams(data map[string]string) error {
	if len(data) == 0 {
		return nil
	}
	for _, o := range a.outputs {
		s := &o.Policy().Spec
		if s.ParamKind == nil || s.ParamKind.Kind != "ConfigMap" || len(s.Bindings) == 0 ||
			s.Bindings[0].ParamRef == nil {
			continue
		}
		ref := s.Bindings[0].ParamRef
		raw, err := json.Marshal(map[string]any{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata":   map[string]any{"name": ref.Name, "namespace": ref.Namespace},
			"data":       data,
		})
		if err != nil {
			return fmt.Errorf("encoding the ConfigMap of the values: %w", err)
		}
		made, err := load.FromJSON("values", raw)
		if err != nil {
			return err
		}
		a.objects = append(a.objects, *made)
	}
	return nil
}
