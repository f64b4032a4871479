// Package policy evaluates WebhookPolicies: it compiles them once, and evaluates the
// compiled policies on one admission request at a time.
//
// CEL, its environments, cost budgets, match conditions and messages are those of
// ValidatingAdmissionPolicy (k8s.io/apiserver), so that an expression gives the same
// result. This package selects the policies of a request, decodes the request once, and
// combines their decisions into one response.
//
// The package is pure: it holds no client and no clock. Environment contains both.
package policy
