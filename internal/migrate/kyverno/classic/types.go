package classic

import (
	"encoding/json"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/kyverno/conditions"
)

// The kinds of the group kyverno.io.
const (
	group             = "kyverno.io"
	kindClusterPolicy = "ClusterPolicy"
	kindPolicy        = "Policy"
	kindException     = "PolicyException"
)

// clusterPolicy is a ClusterPolicy or Policy.
type clusterPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              policySpec `json:"spec"`
	Status            any        `json:"status,omitempty"`
}

type policySpec struct {
	Rules                            []rule                `json:"rules,omitempty"`
	ApplyRules                       string                `json:"applyRules,omitempty"`
	FailurePolicy                    string                `json:"failurePolicy,omitempty"`
	ValidationFailureAction          string                `json:"validationFailureAction,omitempty"`
	ValidationFailureActionOverrides []override            `json:"validationFailureActionOverrides,omitempty"`
	EmitWarning                      bool                  `json:"emitWarning,omitempty"`
	Admission                        *bool                 `json:"admission,omitempty"`
	Background                       *bool                 `json:"background,omitempty"`
	SchemaValidation                 *bool                 `json:"schemaValidation,omitempty"`
	WebhookTimeoutSeconds            *int32                `json:"webhookTimeoutSeconds,omitempty"`
	MutateExistingOnPolicyUpdate     bool                  `json:"mutateExistingOnPolicyUpdate,omitempty"`
	GenerateExistingOnPolicyUpdate   *bool                 `json:"generateExistingOnPolicyUpdate,omitempty"`
	GenerateExisting                 bool                  `json:"generateExisting,omitempty"`
	UseServerSideApply               bool                  `json:"useServerSideApply,omitempty"`
	WebhookConfiguration             *webhookConfiguration `json:"webhookConfiguration,omitempty"`
}

type webhookConfiguration struct {
	FailurePolicy   string                                   `json:"failurePolicy,omitempty"`
	TimeoutSeconds  *int32                                   `json:"timeoutSeconds,omitempty"`
	MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions,omitempty"`
}

type override struct {
	Action            string                `json:"action,omitempty"`
	Namespaces        []string              `json:"namespaces,omitempty"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

type rule struct {
	Name                   string                                   `json:"name"`
	Context                []contextEntry                           `json:"context,omitempty"`
	ReportProperties       map[string]string                        `json:"reportProperties,omitempty"`
	Match                  matchResources                           `json:"match"`
	Exclude                *matchResources                          `json:"exclude,omitempty"`
	ImageExtractors        any                                      `json:"imageExtractors,omitempty"`
	Preconditions          *blocks                                  `json:"preconditions,omitempty"`
	CELPreconditions       []admissionregistrationv1.MatchCondition `json:"celPreconditions,omitempty"`
	Mutate                 *mutation                                `json:"mutate,omitempty"`
	Validate               *validation                              `json:"validate,omitempty"`
	Generate               any                                      `json:"generate,omitempty"`
	VerifyImages           []any                                    `json:"verifyImages,omitempty"`
	SkipBackgroundRequests *bool                                    `json:"skipBackgroundRequests,omitempty"`
}

// blocks are conditions in the form with any and all, or in the former form of a list.
type blocks struct {
	conditions.Block
	list []conditions.Condition
}

// UnmarshalJSON implements json.Unmarshaler.
func (b *blocks) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, &b.list)
	}
	return json.Unmarshal(raw, &b.Block)
}

type contextEntry struct {
	Name            string             `json:"name"`
	ConfigMap       *configMap         `json:"configMap,omitempty"`
	APICall         *apiCall           `json:"apiCall,omitempty"`
	ImageRegistry   any                `json:"imageRegistry,omitempty"`
	Variable        *contextDefinition `json:"variable,omitempty"`
	GlobalReference *globalReference   `json:"globalReference,omitempty"`
}

type configMap struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type contextDefinition struct {
	Value    any    `json:"value,omitempty"`
	JMESPath string `json:"jmesPath,omitempty"`
	Default  any    `json:"default,omitempty"`
}

type matchResources struct {
	Any    []filter `json:"any,omitempty"`
	All    []filter `json:"all,omitempty"`
	filter `json:",inline"`
}

type filter struct {
	Roles        []string            `json:"roles,omitempty"`
	ClusterRoles []string            `json:"clusterRoles,omitempty"`
	Subjects     []rbacv1.Subject    `json:"subjects,omitempty"`
	Resources    resourceDescription `json:"resources,omitempty"`
}

type resourceDescription struct {
	Kinds             []string                                `json:"kinds,omitempty"`
	Name              string                                  `json:"name,omitempty"`
	Names             []string                                `json:"names,omitempty"`
	Namespaces        []string                                `json:"namespaces,omitempty"`
	Annotations       map[string]string                       `json:"annotations,omitempty"`
	Selector          *metav1.LabelSelector                   `json:"selector,omitempty"`
	NamespaceSelector *metav1.LabelSelector                   `json:"namespaceSelector,omitempty"`
	Operations        []admissionregistrationv1.OperationType `json:"operations,omitempty"`
}

type validation struct {
	FailureAction           string               `json:"failureAction,omitempty"`
	FailureActionOverrides  []override           `json:"failureActionOverrides,omitempty"`
	AllowExistingViolations *bool                `json:"allowExistingViolations,omitempty"`
	Message                 string               `json:"message,omitempty"`
	Manifests               any                  `json:"manifests,omitempty"`
	Assert                  any                  `json:"assert,omitempty"`
	PodSecurity             *podSecurityStandard `json:"podSecurity,omitempty"`
	CEL                     *celRule             `json:"cel,omitempty"`
	ForEach                 []forEach            `json:"foreach,omitempty"`
	checks                  `json:",inline"`
}

// checks are the forms of a check, of which a rule has one.
type checks struct {
	Pattern    any   `json:"pattern,omitempty"`
	AnyPattern []any `json:"anyPattern,omitempty"`
	Deny       *deny `json:"deny,omitempty"`
}

type deny struct {
	Conditions *blocks `json:"conditions,omitempty"`
}

type forEach struct {
	List          string            `json:"list,omitempty"`
	ElementScope  *bool             `json:"elementScope,omitempty"`
	Context       []contextEntry    `json:"context,omitempty"`
	Preconditions *conditions.Block `json:"preconditions,omitempty"`
	ForEach       []forEach         `json:"foreach,omitempty"`
	checks        `json:",inline"`
}

type podSecurityStandard struct {
	Level   string      `json:"level,omitempty"`
	Version string      `json:"version,omitempty"`
	Exclude []exclusion `json:"exclude,omitempty"`
}

type exclusion struct {
	ControlName     string   `json:"controlName"`
	Images          []string `json:"images,omitempty"`
	RestrictedField string   `json:"restrictedField,omitempty"`
	Values          []string `json:"values,omitempty"`
}

type celRule struct {
	Generate         *bool                                     `json:"generate,omitempty"`
	Expressions      []admissionregistrationv1.Validation      `json:"expressions,omitempty"`
	ParamKind        *admissionregistrationv1.ParamKind        `json:"paramKind,omitempty"`
	ParamRef         *admissionregistrationv1.ParamRef         `json:"paramRef,omitempty"`
	AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations,omitempty"`
	Variables        []admissionregistrationv1.Variable        `json:"variables,omitempty"`
}

type mutation struct {
	MutateExistingOnPolicyUpdate *bool             `json:"mutateExistingOnPolicyUpdate,omitempty"`
	Targets                      []any             `json:"targets,omitempty"`
	PatchStrategicMerge          any               `json:"patchStrategicMerge,omitempty"`
	PatchesJSON6902              string            `json:"patchesJson6902,omitempty"`
	ForEach                      []forEachMutation `json:"foreach,omitempty"`
}

type forEachMutation struct {
	List                string            `json:"list,omitempty"`
	Order               string            `json:"order,omitempty"`
	Context             []contextEntry    `json:"context,omitempty"`
	Preconditions       *conditions.Block `json:"preconditions,omitempty"`
	PatchStrategicMerge any               `json:"patchStrategicMerge,omitempty"`
	PatchesJSON6902     string            `json:"patchesJson6902,omitempty"`
	ForEach             []forEachMutation `json:"foreach,omitempty"`
}

// policyException is a PolicyException.
type policyException struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              exceptionSpec `json:"spec"`
}

type exceptionSpec struct {
	Background  *bool             `json:"background,omitempty"`
	Match       matchResources    `json:"match"`
	Conditions  *conditions.Block `json:"conditions,omitempty"`
	Exceptions  []exceptionRef    `json:"exceptions"`
	PodSecurity []exclusion       `json:"podSecurity,omitempty"`
}

type exceptionRef struct {
	PolicyName string   `json:"policyName"`
	RuleNames  []string `json:"ruleNames"`
}
