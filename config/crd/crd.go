// Package crd holds the definition of policies as it is installed.
package crd

import _ "embed" // for the definition

// WebhookPolicies is the CustomResourceDefinition of WebhookPolicies, in YAML.
//
//go:embed bases/admission.ostiary.dev_webhookpolicies.yaml
var WebhookPolicies []byte
