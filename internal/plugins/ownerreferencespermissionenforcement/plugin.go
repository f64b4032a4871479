// Package ownerreferencespermissionenforcement prevents users who may write an object,
// but not delete it, from letting the garbage collector delete it, and from blocking the
// deletion of its owner.
package ownerreferencespermissionenforcement

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/plugins/define"
)

// Plugin checks permissions of the user when owner references change.
type Plugin struct{}

// Definition is the plugin's entry in the catalogue.
func Definition() define.Definition {
	return define.Plugin(v1alpha1.PluginOwnerReferencesPermissionEnforcement,
		func(define.None, *field.Path) (pluginapi.Plugin, field.ErrorList) {
			return Plugin{}, nil
		})
}

// Rules implements pluginapi.Plugin.
func (Plugin) Rules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: define.Writes(),
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
}

// Conditions implements plugins.Conditions: most objects have no owners before and after
// a request, and the webhook is not called for them.
func (Plugin) Conditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{{
		Name: "has-owner-references",
		Expression: "object != null && has(object.metadata) && has(object.metadata.ownerReferences) || " +
			"oldObject != null && has(oldObject.metadata) && has(oldObject.metadata.ownerReferences)",
	}}
}

// Validate implements pluginapi.Validator.
func (Plugin) Validate(ctx context.Context, call *pluginapi.Call) error {
	before, after := owners(call)
	if !writes(call) || same(before, after) {
		return nil
	}
	// The creator of an object needs no permission to delete it.
	if call.GetOperation() != admission.Create {
		decision, reason, err := call.Authorizer.Authorize(ctx, deletion(call))
		if decision != authorizer.DecisionAllow {
			return call.Forbid("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err)
		}
	}
	blocking := newlyBlocking(before, after)
	if len(blocking) == 0 {
		return nil
	}
	if decision, _, _ := call.Authorizer.Authorize(ctx, finalizeAnything(call)); decision == authorizer.DecisionAllow {
		return nil
	}
	for i := range blocking {
		if err := checkOwner(ctx, call, &blocking[i]); err != nil {
			return err
		}
	}
	return nil
}

// writes returns false for the status of Pods, which cannot change owners: some kubelets
// omit them.
func writes(call *pluginapi.Call) bool {
	return call.GetResource().GroupResource() != schema.GroupResource{Resource: "pods"} || call.GetSubresource() != "status"
}

func owners(call *pluginapi.Call) (before, after []metav1.OwnerReference) {
	if old := call.OldObject(); old != nil {
		before = old.GetOwnerReferences()
	}
	if object := call.Object(); object != nil {
		after = object.GetOwnerReferences()
	}
	return before, after
}

func same(before, after []metav1.OwnerReference) bool {
	if len(before) != len(after) {
		return false
	}
	for i := range before {
		if !equality.Semantic.DeepEqual(before[i], after[i]) {
			return false
		}
	}
	return true
}

// newlyBlocking returns the references that block the deletion of their owner and did not
// before.
func newlyBlocking(before, after []metav1.OwnerReference) []metav1.OwnerReference {
	blocked := map[types.UID]bool{}
	for _, ref := range before {
		blocked[ref.UID] = blocks(ref)
	}
	var out []metav1.OwnerReference
	for _, ref := range after {
		if blocks(ref) && !blocked[ref.UID] {
			out = append(out, ref)
		}
	}
	return out
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

// checkOwner denies a reference to an owner whose finalizers the user may not write.
func checkOwner(ctx context.Context, call *pluginapi.Call, ref *metav1.OwnerReference) error {
	resources, err := resourcesOf(call, ref)
	if err != nil {
		return call.Forbid("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s "+
			"Kind %s: %w", ref.APIVersion, ref.Kind, err)
	}
	for _, r := range resources {
		question := authorizer.AttributesRecord{
			User: call.GetUserInfo(), Verb: "update",
			APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: "finalizers",
			Name: ref.Name, ResourceRequest: true,
		}
		if r.Namespaced {
			question.Namespace = call.GetNamespace() // an owner has the namespace of its dependents
		}
		decision, reason, err := call.Authorizer.Authorize(ctx, question)
		if decision != authorizer.DecisionAllow {
			return call.Forbid("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set "+
				"finalizers on: %v, %v", reason, err)
		}
	}
	return nil
}

func resourcesOf(call *pluginapi.Call, ref *metav1.OwnerReference) ([]pluginapi.KindResource, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	return call.Kinds.ResourcesOf(gv.WithKind(ref.Kind))
}

func deletion(call *pluginapi.Call) authorizer.Attributes {
	r := call.GetResource()
	return authorizer.AttributesRecord{
		User: call.GetUserInfo(), Verb: "delete", Namespace: call.GetNamespace(),
		APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Subresource: call.GetSubresource(),
		Name: call.GetName(), ResourceRequest: true,
	}
}

func finalizeAnything(call *pluginapi.Call) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: call.GetUserInfo(), Verb: "update",
		APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	}
}
