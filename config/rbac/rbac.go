// Package rbac holds the admission policy that guards exceptions, as it is installed.
package rbac

import _ "embed" // for the policy

// ExceptionPolicy is the ValidatingAdmissionPolicy that guards exceptions, and its binding, in YAML.
//
//go:embed exception_policy.yaml
var ExceptionPolicy []byte
