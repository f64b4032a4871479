package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// LookupScope says where the objects of a lookup are.
type LookupScope string

const (
	// LookupScopeNamespace limits a lookup to the objects in the namespace of the request.
	LookupScopeNamespace LookupScope = "Namespace"
	// LookupScopeCluster makes a lookup find objects in every namespace, and cluster-scoped ones.
	LookupScopeCluster LookupScope = "Cluster"
)

// LookupMatch says which keys of a stored object and of a request have to be equal.
type LookupMatch string

const (
	// LookupMatchAny finds objects that have at least one of the keys of the request.
	LookupMatchAny LookupMatch = "Any"
	// LookupMatchAllRequestKeys finds objects that have every key of the request: the Pods with
	// all labels of the selector of a Service.
	LookupMatchAllRequestKeys LookupMatch = "AllRequestKeys"
	// LookupMatchAllStoredKeys finds objects all of whose keys the request has: the Services whose
	// selector matches the labels of a Pod.
	LookupMatchAllStoredKeys LookupMatch = "AllStoredKeys"
)

// LookupKeyErrors says what a stored object without keys means.
type LookupKeyErrors string

const (
	// LookupKeyErrorsFail makes requests errors that could find a stored object whose storedKeys
	// or value fail: those in its namespace.
	LookupKeyErrorsFail LookupKeyErrors = "Fail"
	// LookupKeyErrorsSkip leaves such objects out. The status counts them.
	LookupKeyErrorsSkip LookupKeyErrors = "Skip"
)

// Lookup finds stored objects by keys that they have in common with the object of a request.
//
// +kubebuilder:validation:XValidation:rule="!has(self.scope) || self.scope != 'Cluster' || has(self.keyErrors) && self.keyErrors == 'Skip'",fieldPath=".keyErrors",reason=FieldValueRequired,message="set keyErrors to Skip: with scope Cluster, one object in any namespace could otherwise block every request"
type Lookup struct {
	// name is that of the list in expressions: lookups.<name>. A CEL identifier, unique in the
	// policy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",reason=FieldValueInvalid,message="write name with letters, digits and '_', not beginning with a digit"
	// +kubebuilder:validation:XValidation:rule="!(self in ['true', 'false', 'null', 'in', 'as', 'break', 'const', 'continue', 'else', 'for', 'function', 'if', 'import', 'let', 'loop', 'package', 'namespace', 'return', 'var', 'void', 'while'])",reason=FieldValueInvalid,message="choose another name: CEL reserves this word"
	Name string `json:"name"`

	// resource is that of the stored objects. The author of the policy needs the permission to
	// list it in all namespaces. Ostiary watches it as the ServiceAccount ostiary-lookups, which
	// needs the permissions list and watch: create a ClusterRole with them and the label
	// admission.ostiary.dev/aggregate-to-lookups: "true".
	// +required
	Resource LookupResource `json:"resource"`

	// scope says where the objects are: Namespace for those in the namespace of the request, or
	// Cluster for all. Default Namespace.
	// +optional
	// +kubebuilder:validation:Enum=Namespace;Cluster
	Scope LookupScope `json:"scope,omitempty"`

	// storedKeys is a CEL expression over stored, an object of the resource. It is evaluated when
	// the object changes, and returns a list of strings: its keys. At most 1,000 keys of 1 KiB each
	// and 64 KiB together.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",reason=FieldValueRequired,message="write a CEL expression that gives a list of strings"
	StoredKeys string `json:"storedKeys"`

	// requestKeys is a CEL expression over the request, as in validations, that returns a list of
	// strings. It can use params and variables that read no lookup.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.trim() != ''",reason=FieldValueRequired,message="write a CEL expression that gives a list of strings"
	RequestKeys string `json:"requestKeys"`

	// match says which keys have to be equal. Any: at least one. AllRequestKeys: the object has
	// every key of the request, as the Pods of a Service have all labels of its selector.
	// AllStoredKeys: the request has every key of the object, as a Pod has all labels that its
	// Services select. Without keys, nothing is found. Default Any.
	// +optional
	// +kubebuilder:validation:Enum=Any;AllRequestKeys;AllStoredKeys
	Match LookupMatch `json:"match,omitempty"`

	// value is a CEL expression over stored, whose result is an element of the list. At most 1 KiB
	// as JSON. Default {"namespace": stored.metadata.namespace, "name": stored.metadata.name}, with
	// an empty namespace for cluster-scoped objects. Write dyn() around the values of a map that
	// have different types.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`

	// keyErrors says what happens if storedKeys or value fail for a stored object. Fail: requests
	// in its namespace are errors, which failurePolicy decides. Skip: the object is left out, and
	// counted in the status. Default Fail; scope Cluster requires Skip.
	// +optional
	// +kubebuilder:validation:Enum=Fail;Skip
	KeyErrors LookupKeyErrors `json:"keyErrors,omitempty"`
}

// LookupResource names a resource.
type LookupResource struct {
	// group is the API group; empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`

	// version is the version in which expressions read the objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`

	// resource is the plural name, in lower case, without a subresource.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",reason=FieldValueInvalid,message="write the plural name of the resource in lower case, without a subresource"
	Resource string `json:"resource"`
}

// LookupStatus is the state of a lookup on the replica that leads.
type LookupStatus struct {
	// name of the lookup.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// objects is the number of stored objects that have keys, rounded to two digits so that the
	// status does not change with each of them.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int64 `json:"objects,omitempty"`

	// leftOut is the number of stored objects that are left out because storedKeys or value fail.
	// +optional
	// +kubebuilder:validation:Minimum=0
	LeftOut int64 `json:"leftOut,omitempty"`

	// message says why the lookup cannot be used, or which objects are left out and why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// EffectiveScope returns the scope, by default Namespace.
func (l *Lookup) EffectiveScope() LookupScope {
	if l.Scope == "" {
		return LookupScopeNamespace
	}
	return l.Scope
}

// EffectiveMatch returns the match, by default Any.
func (l *Lookup) EffectiveMatch() LookupMatch {
	if l.Match == "" {
		return LookupMatchAny
	}
	return l.Match
}

// EffectiveKeyErrors returns keyErrors, by default Fail.
func (l *Lookup) EffectiveKeyErrors() LookupKeyErrors {
	if l.KeyErrors == "" {
		return LookupKeyErrorsFail
	}
	return l.KeyErrors
}

// GroupResource returns the resource without its version.
func (r *LookupResource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}
