// Package exceptions decides which objects the exceptions of policies cover, and when. It has
// neither a client nor a clock, so that admission, the audit and the command line give the same
// answers.
package exceptions

import (
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/celengine"
)

// Key identifies an exception. The namespace is empty for a ClusterWebhookPolicyException.
type Key struct{ Namespace, Name string }

// String is "namespace/name", or only the name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Entry is what evaluations need of an exception. It is immutable, except for its condition,
// which is compiled at the first use, and safe for concurrent use.
type Entry struct {
	Key
	// Policy is the name of the policy.
	Policy string
	// Reason is why the exception exists.
	Reason string
	// Created is zero for an exception of a file, which is treated as created now.
	Created time.Time
	// Expires is the end; zero without one.
	Expires time.Time
	// Condition is the text of the condition; empty without one.
	Condition string
	// Generation is the metadata.generation.
	Generation int64
	// Deleting says that it has been deleted, and that a finalizer keeps it.
	Deleting bool

	ends        bool
	validations []string
	all         bool // validations has "*"
	matches     []match
	invalid     error  // a selector, without which the exception has no effect
	hash        uint64 // differs between two exceptions of the same name
	program     atomic.Pointer[compiledCondition]
}

// match is an entry of spec.match with a parsed selector.
type match struct {
	group            string
	resources, names []string
	selector         labels.Selector // nil without one
}

type compiledCondition struct {
	by      Compiler
	program *celengine.Program
}

// Compiler compiles conditions, as a *policy.Compiler does.
type Compiler interface {
	Condition(expression string) *celengine.Program
}

// NewEntry returns the entry of an exception. It keeps parts of the spec, which must not change.
func NewEntry(x v1alpha1.Exception) *Entry {
	spec := x.GetSpec()
	e := &Entry{
		Key:         Key{Namespace: x.GetNamespace(), Name: x.GetName()},
		Policy:      spec.PolicyName,
		Reason:      spec.Reason,
		Created:     x.GetCreationTimestamp().Time,
		Condition:   spec.Condition,
		Generation:  x.GetGeneration(),
		Deleting:    x.GetDeletionTimestamp() != nil,
		validations: spec.Validations,
		all:         slices.Contains(spec.Validations, v1alpha1.AllValidations),
		matches:     make([]match, len(spec.Match)),
	}
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %d %d", e.Key, e.Generation, e.Created.UnixNano()) // never fails
	e.hash = hash.Sum64()
	if spec.ExpirationTime != nil {
		e.ends, e.Expires = true, spec.ExpirationTime.Time
	}
	for i, m := range spec.Match {
		e.matches[i] = match{group: m.Group, resources: m.Resources, names: m.Names}
		if m.ObjectSelector == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(m.ObjectSelector)
		if err != nil {
			e.invalid = fmt.Errorf("spec.match[%d].objectSelector: %w", i, err)
		}
		e.matches[i].selector = selector
	}
	return e
}

// Includes reports whether the exception is about a validation; "" is one without a name, a
// mutation or a plugin.
func (e *Entry) Includes(validation string) bool {
	return e.all || validation != "" && slices.Contains(e.validations, validation)
}

// Program returns the compiled condition, which has an error if it does not compile.
func (e *Entry) Program(compiler Compiler) *celengine.Program {
	if known := e.program.Load(); known != nil && known.by == compiler {
		return known.program
	}
	program := compiler.Condition(e.Condition)
	e.program.Store(&compiledCondition{by: compiler, program: program})
	return program
}
