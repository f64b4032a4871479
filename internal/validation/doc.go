// Package validation finds errors and risks of WebhookPolicies. It is pure: the webhook
// for policies and the controller call the same functions, so their results are equal.
package validation
