// Package gatekeeper converts the mutators of Gatekeeper, and constraints whose templates are written in
// CEL or are templates in Rego of the public library.
package gatekeeper

import (
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API groups.
const (
	templatesGroup   = "templates.gatekeeper.sh"
	constraintsGroup = "constraints.gatekeeper.sh"
	mutationsGroup   = "mutations.gatekeeper.sh"
	expansionGroup   = "expansion.gatekeeper.sh"
)

// constraintsVersion is the version of constraints that all releases serve.
const constraintsVersion = "v1beta1"

// engineCEL is the engine of templates in CEL.
const engineCEL = "K8sNativeValidation"

// constraintTemplate is a ConstraintTemplate.
type constraintTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		CRD struct {
			Spec struct {
				Names struct {
					Kind       string   `json:"kind"`
					ShortNames []string `json:"shortNames,omitempty"`
				} `json:"names"`
				Validation *struct {
					LegacySchema    *bool           `json:"legacySchema,omitempty"`
					OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema,omitempty"`
				} `json:"validation,omitempty"`
			} `json:"spec"`
		} `json:"crd"`
		Targets []templateTarget `json:"targets"`
	} `json:"spec"`
	Status json.RawMessage `json:"status,omitempty"`
}

type templateTarget struct {
	Target     string                                  `json:"target"`
	Rego       string                                  `json:"rego,omitempty"`
	Libs       []string                                `json:"libs,omitempty"`
	Operations []admissionregistrationv1.OperationType `json:"operations,omitempty"`
	Code       []templateCode                          `json:"code,omitempty"`
}

type templateCode struct {
	Engine string          `json:"engine"`
	Source json.RawMessage `json:"source"`
}

// celSource is the source of the engine for CEL.
type celSource struct {
	Validations     []celValidation                            `json:"validations,omitempty"`
	FailurePolicy   *admissionregistrationv1.FailurePolicyType `json:"failurePolicy,omitempty"`
	MatchConditions []admissionregistrationv1.MatchCondition   `json:"matchCondition,omitempty"`
	Variables       []admissionregistrationv1.Variable         `json:"variables,omitempty"`
	// What Gatekeeper writes for its own use.
	GenerateVAP *bool `json:"generateVAP,omitempty"`
}

type celValidation struct {
	Expression        string `json:"expression"`
	Message           string `json:"message,omitempty"`
	MessageExpression string `json:"messageExpression,omitempty"`
}

// gatekeeperConstraint is an object of a kind that a template defines.
type gatekeeperConstraint struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		EnforcementAction        string         `json:"enforcementAction,omitempty"`
		ScopedEnforcementActions []scopedAction `json:"scopedEnforcementActions,omitempty"`
		Match                    requestMatch   `json:"match,omitempty"`
		Parameters               any            `json:"parameters,omitempty"`
	} `json:"spec,omitempty"`
	Status json.RawMessage `json:"status,omitempty"`
}

type scopedAction struct {
	Action            string `json:"action"`
	EnforcementPoints []struct {
		Name string `json:"name"`
	} `json:"enforcementPoints,omitempty"`
}

// requestMatch selects requests.
type requestMatch struct {
	Source             string                `json:"source,omitempty"`
	Kinds              []selectedKinds       `json:"kinds,omitempty"`
	Scope              string                `json:"scope,omitempty"`
	Namespaces         []string              `json:"namespaces,omitempty"`
	ExcludedNamespaces []string              `json:"excludedNamespaces,omitempty"`
	LabelSelector      *metav1.LabelSelector `json:"labelSelector,omitempty"`
	NamespaceSelector  *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	Name               string                `json:"name,omitempty"`
}

type selectedKinds struct {
	APIGroups []string `json:"apiGroups,omitempty"`
	Kinds     []string `json:"kinds,omitempty"`
	// APIVersions have no effect in Gatekeeper.
	APIVersions []string `json:"apiVersions,omitempty"`
	// versions are those to which a mutator applies.
	versions []string
}
