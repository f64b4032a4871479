// Package crd holds the definitions of policies and their exceptions as they are installed.
package crd

import _ "embed" // for the definitions

// WebhookPolicies is the CustomResourceDefinition of WebhookPolicies, in YAML.
//
//go:embed bases/admission.ostiary.dev_webhookpolicies.yaml
var WebhookPolicies []byte

// WebhookPolicyExceptions is the CustomResourceDefinition of WebhookPolicyExceptions, in YAML. That
// of ClusterWebhookPolicyExceptions has the same schema.
//
//go:embed bases/admission.ostiary.dev_webhookpolicyexceptions.yaml
var WebhookPolicyExceptions []byte
