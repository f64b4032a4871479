package ownerreferencespermissionenforcement_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/ostiary/ostiary/internal/accessreview"
	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// authorize lets users do what their names say.
func authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	denied := false
	switch a.GetUser().GetName() {
	case "super":
	case "non-deleter":
		denied = a.GetVerb() == "delete" || a.GetVerb() == "update" && a.GetSubresource() == "finalizers"
	case "non-pod-deleter":
		denied = a.GetVerb() == "delete" && a.GetResource() == "pods" || a.GetVerb() == "update" && a.GetSubresource() == "finalizers" && (a.GetResource() == "pods" || a.GetResource() == "*")
	case "non-rc-deleter":
		denied = a.GetVerb() == "update" && a.GetSubresource() == "finalizers" && (a.GetResource() == "replicationcontrollers" || a.GetResource() == "*")
	case "unanswered":
		return authorizer.DecisionNoOpinion, "", &accessreview.UnavailableError{Err: errors.New("no answer")}
	}
	if denied {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

type kinds struct{}

func (kinds) ResourcesOf(kind schema.GroupVersionKind) ([]pluginapi.KindResource, error) {
	switch kind.Kind {
	case "ReplicationController":
		return []pluginapi.KindResource{{GroupVersionResource: kind.GroupVersion().WithResource("replicationcontrollers"), Namespaced: true}}, nil
	case "Node":
		return []pluginapi.KindResource{{GroupVersionResource: kind.GroupVersion().WithResource("nodes")}}, nil
	}
	return nil, fmt.Errorf("no matches for kind %q in version %q", kind.Kind, kind.GroupVersion().String())
}

func owner(kind, uid, more string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: %s, name: o, uid: %s%s}", kind, uid, more)
}

func TestOwnerReferences(t *testing.T) {
	const (
		cannotDelete   = `is forbidden: cannot set an ownerRef on a resource you can't delete: , <nil>`
		cannotFinalize = `is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: , <nil>`
		blocks         = ", blockOwnerDeletion: true"
	)
	rc, rcBlocking := owner("ReplicationController", "a", ""), owner("ReplicationController", "a", blocks)
	node := owner("Node", "b", blocks)
	tests := map[string]struct {
		user, resource, subresource string
		update                      bool
		before, after               string
		want                        string // how the message ends
	}{
		"create without":                          {user: "non-deleter"},
		"create with":                             {user: "non-deleter", after: rc},
		"update without a change":                 {user: "non-deleter", update: true, before: rc, after: rc},
		"added by one who may delete":             {user: "super", update: true, after: rc},
		"added by one who may not":                {user: "non-deleter", update: true, after: rc, want: cannotDelete},
		"taken away by one who may not":           {user: "non-deleter", update: true, before: rc, want: cannotDelete},
		"changed by one who may not":              {user: "non-deleter", update: true, before: rc, after: node, want: cannotDelete},
		"of Pods, by one who may not delete Pods": {user: "non-pod-deleter", update: true, after: rc, want: cannotDelete},
		"of others, by the same":                  {user: "non-pod-deleter", resource: "configmaps", update: true, after: rc},
		"status of Pods":                          {user: "non-deleter", subresource: "status", update: true, after: rc},
		"blocking, by one who may everything":     {user: "super", after: rcBlocking},
		"blocking, by one who may not":            {user: "non-rc-deleter", after: rcBlocking, want: cannotFinalize},
		"not blocking, by the same":               {user: "non-rc-deleter", after: rc},
		"blocking another owner, by the same":     {user: "non-rc-deleter", after: node},
		"blocking two, one of which may not be":   {user: "non-rc-deleter", after: node + "," + rcBlocking, want: cannotFinalize},
		"blocking before too":                     {user: "non-rc-deleter", update: true, before: rcBlocking, after: rcBlocking + "," + node},
		"becomes blocking":                        {user: "non-rc-deleter", update: true, before: rc, after: rcBlocking, want: cannotFinalize},
		"blocks no more":                          {user: "non-rc-deleter", update: true, before: rcBlocking, after: rc},
		"blocking an owner of a kind that is not known": {user: "non-rc-deleter", after: owner("Unknown", "c", blocks),
			want: `is forbidden: cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion v1 Kind Unknown: no matches for kind "Unknown" in version "v1"`},
		"the authorizer does not answer": {user: "unanswered", update: true, after: rc, want: "asking for authorization: no answer"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kind, resource := "Pod", "pods"
			if tc.resource != "" {
				kind, resource = "ConfigMap", tc.resource
			}
			object := func(owners string) string {
				if owners == "" {
					return "{apiVersion: v1, kind: " + kind + ", metadata: {name: web}}"
				}
				return "{apiVersion: v1, kind: " + kind + ", metadata: {name: web, ownerReferences: [" + owners + "]}}"
			}
			r := plugintest.Request{
				Object: object(tc.after), Resource: metav1.GroupVersionResource{Version: "v1", Resource: resource}, Subresource: tc.subresource,
				User: authenticationv1.UserInfo{Username: tc.user},
			}
			if tc.update {
				r.Operation, r.OldObject = "UPDATE", object(tc.before)
			}
			got := plugintest.Ask(t, "plugin: {name: OwnerReferencesPermissionEnforcement}", r, policy.Environment{Authorizer: authorizer.AuthorizerFunc(authorize), Kinds: kinds{}})
			if !strings.HasSuffix(got.Message, tc.want) || (tc.want == "") != (got.Code == 0) {
				t.Errorf("%d %q, want %q", got.Code, got.Message, tc.want)
			}
		})
	}
}
