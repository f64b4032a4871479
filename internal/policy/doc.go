// Package policy decides admission requests: it compiles WebhookPolicies once
// and evaluates the compiled form against one request at a time.
//
// CEL, its environments, cost budgets, match conditions and messages are those
// of the API server's own ValidatingAdmissionPolicy (k8s.io/apiserver), so that
// the same expression gives the same answer. What is left to this package is
// which policies a request meets, sharing one decoded request among all of
// them, and gathering their decisions into one answer.
//
// The package is pure: it holds no client and reads no clock. A namespace
// getter and a clock are handed in with each call.
package policy
