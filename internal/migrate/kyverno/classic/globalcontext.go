package classic

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// kindGlobalContext is the kind of what Kyverno reads for all policies.
const kindGlobalContext = "GlobalContextEntry"

// globalContextEntry is a GlobalContextEntry.
type globalContextEntry struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		KubernetesResource *struct {
			Group     string `json:"group,omitempty"`
			Version   string `json:"version"`
			Resource  string `json:"resource"`
			Namespace string `json:"namespace,omitempty"`
		} `json:"kubernetesResource,omitempty"`
		APICall *struct {
			apiCall         `json:",inline"`
			RefreshInterval any `json:"refreshInterval,omitempty"`
			RetryLimit      any `json:"retryLimit,omitempty"`
		} `json:"apiCall,omitempty"`
		Projections []struct {
			Name     string `json:"name"`
			JMESPath string `json:"jmesPath"`
		} `json:"projections,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// globalReference is a reference to a GlobalContextEntry, or to one of its projections.
type globalReference struct {
	Name     string `json:"name"`
	JMESPath string `json:"jmesPath,omitempty"`
}

// globalEntry is an entry, and what became of it.
type globalEntry struct {
	globalContextEntry
	source *load.Object
	used   bool
}

// globalEntriesOf returns the entries of the input by name, and conversions of those that cannot be read.
func globalEntriesOf(in *conversion.Input) (entries map[string]*globalEntry, left []conversion.Conversion) {
	entries = map[string]*globalEntry{}
	for i := range in.Objects {
		if in.Objects[i].Kind != kindGlobalContext {
			continue
		}
		c := conversion.Conversion{Source: in.Objects[i]}
		e := &globalEntry{source: &in.Objects[i]}
		if c.Decode(&e.globalContextEntry) {
			entries[e.Name] = e
		} else {
			left = append(left, c)
		}
	}
	return entries, left
}

// conversion says what became of the entry.
func (e *globalEntry) conversion() conversion.Conversion {
	c := conversion.Conversion{Source: *e.source}
	if !e.used {
		c.LeaveOut("", "no converted rule of the input reads it", "use a lookup in the policies that read it")
		return c
	}
	c.Add(conversion.Row{Outcome: conversion.Converted, Detail: "it is a lookup of each policy that reads it"})
	return c
}

// globalReference returns a scope with the variable of a GlobalContextEntry.
func (v *ruleConverter) globalReference(scope *conditions.Scope, name string, r *globalReference) (*conditions.Scope, error) {
	leaveOut := func(why, alternative string) (*conditions.Scope, error) {
		return nil, &leftOutError{"context", fmt.Sprintf("the variable %s reads %s", name, why), alternative}
	}
	entry, projection, _ := strings.Cut(r.Name, ".")
	e := v.global[entry]
	switch {
	case e == nil:
		return leaveOut("the GlobalContextEntry "+r.Name+", which the input does not have", "add its file with -f")
	case v.policy.Kind == kindPolicy:
		return leaveOut("a GlobalContextEntry, which Kyverno denies to a Policy", "use a ClusterPolicy")
	}
	read := reading{name: name}
	for _, p := range e.Spec.Projections {
		if p.Name == projection {
			read.paths = append(read.paths, p.JMESPath)
		}
	}
	if projection != "" && len(read.paths) == 0 {
		return leaveOut("the projection "+r.Name+", which its GlobalContextEntry does not have", "correct its name")
	}
	if r.JMESPath != "" {
		read.paths = append(read.paths, r.JMESPath)
	}
	out, err := v.readEntry(scope, e, read)
	e.used = e.used || err == nil
	return out, err
}

// readEntry returns a scope with what is read of an entry.
func (v *ruleConverter) readEntry(scope *conditions.Scope, e *globalEntry, r reading) (*conditions.Scope, error) {
	if c := e.Spec.APICall; c != nil {
		call := c.apiCall
		return v.call(scope, &call, r)
	}
	k := e.Spec.KubernetesResource
	if k == nil {
		return nil, &leftOutError{"context", "the GlobalContextEntry " + e.Name + " reads nothing", "correct it"}
	}
	r.isList = true
	r.objects = requestedObjects{
		GroupVersionResource: schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource},
		namespace:            k.Namespace,
	}
	return v.read(scope, r)
}
