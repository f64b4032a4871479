// Package validation is the home of the rules about WebhookPolicies: it finds their errors
// and risks. It is pure: the webhook for policies and the controller call the same functions,
// so their results are equal.
//
// Each field has one file, named after it, with its errors (check…), its warnings (methods
// of warner), and the rules about it in the CustomResourceDefinition (…Schema) that the
// errors repeat. The errors repeat rules because a stored policy can be older than a rule.
// hack/crdlimits writes the rules into the definition, so that a message has one source.
// Rules that only the API server checks, such as limits and patterns, are markers on the
// field in api/v1alpha1, or in hack/crdlimits for fields of Kubernetes types. A test in
// test/crd compares both sets of rules.
package validation
