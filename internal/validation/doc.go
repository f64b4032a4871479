// Package validation says what is wrong with a WebhookPolicy and what is risky about
// it, before it is in force. It is pure: the webhook for policies, the
// controller and the command line call the same functions, so they cannot
// disagree.
package validation
