// Package canary proves that API servers reach Ostiary: API server, Service,
// replica and TLS, all of it, which no other observation does. Only the leader
// runs it.
package canary

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/registration"
)

// Reasons of the condition Effective, and of the events about it.
const (
	// ReasonProven means that API servers reach Ostiary.
	ReasonProven = "Proven"
	// ReasonNotProven means that it has not been tried yet.
	ReasonNotProven = "NotProven"
	// ReasonCannotAsk means that no API server could be asked.
	ReasonCannotAsk = "CannotAsk"
	// ReasonNotCalled means that an API server does not call Ostiary.
	ReasonNotCalled = "NotCalled"
	// ReasonConnectionRefused and the others mean that the call fails.
	ReasonConnectionRefused = "ConnectionRefused"
	ReasonTimedOut          = "TimedOut"
	ReasonNotTrusted        = "CertificateNotTrusted"
	ReasonNoEndpoints       = "NoEndpoints"
	ReasonServiceNotFound   = "ServiceNotFound"
	ReasonNameNotFound      = "NameNotFound"
	ReasonNoRoute           = "NoRoute"
	ReasonCallFailed        = "CallFailed"
)

// Verdict is whether API servers reach Ostiary, in one phase of admission.
type Verdict struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// same reports whether two verdicts differ in their words alone: what an API
// server says of a failure holds ports and times, and is not written again for them.
func (v Verdict) same(other Verdict) bool {
	return v.Status == other.Status && v.Reason == other.Reason
}

func unproven() Verdict {
	return Verdict{metav1.ConditionUnknown, ReasonNotProven, "whether API servers reach Ostiary has yet to be tried"}
}

// answer is what came of one canary, through one API server.
type answer struct {
	address string
	verdict Verdict
}

// judge reads the outcome of a canary's request.
func judge(phase registration.Phase, nonce string, err error) Verdict {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return Verdict{metav1.ConditionFalse, ReasonNotCalled, "the API server does not call the canary: it has not seen its configuration yet, " +
			"or runs without the admission plugin " + plugin(phase)}
	case !errors.As(err, &status):
		return Verdict{metav1.ConditionUnknown, ReasonCannotAsk, "the API server cannot be asked: " + registration.Conceal(err.Error())}
	}
	message := registration.Conceal(status.Status().Message)
	switch {
	case status.Status().Code == http.StatusForbidden && strings.HasSuffix(message, registration.CanaryMessage(nonce)):
		return Verdict{metav1.ConditionTrue, ReasonProven, "the API server reaches Ostiary: a canary was called"}
	case status.Status().Code == http.StatusInternalServerError && strings.Contains(message, phase.CanaryWebhook()):
		reason, advice := cause(message)
		return Verdict{metav1.ConditionFalse, reason, fmt.Sprintf("the API server does not reach Ostiary: %s: %s", message, advice)}
	}
	return Verdict{metav1.ConditionUnknown, ReasonCannotAsk, "the API server refuses the canary's request before it calls Ostiary: " + message}
}

func plugin(phase registration.Phase) string {
	if phase == registration.PhaseMutate {
		return "MutatingAdmissionWebhook"
	}
	return "ValidatingAdmissionWebhook"
}

// cause tells what usually is behind an API server's words, and what to do. They
// come from another program, so there is nothing but their text to go by.
func cause(text string) (reason, advice string) {
	for _, known := range []struct{ sign, reason, advice string }{
		{"connection refused", ReasonConnectionRefused, "nothing listens where the call arrives: compare the Service's port with --webhook-address, and see whether the Pods run"},
		{"no endpoints available", ReasonNoEndpoints, "no replica is ready: see the Pods' /readyz"},
		{"x509: ", ReasonNotTrusted, "something else answers, or a proxy stands in between: the certificate is not the one that Ostiary serves"},
		{"tls: ", ReasonNotTrusted, "something else than Ostiary answers, or a proxy stands in between"},
		{"no such host", ReasonNameNotFound, "the API server cannot resolve the name: correct --webhook-url"},
		{"no route to host", ReasonNoRoute, "a firewall refuses the way from the API server to Ostiary's Pods: open the port of --webhook-address, or run Ostiary with hostNetwork"},
		{"deadline exceeded", ReasonTimedOut, "a firewall or a NetworkPolicy drops what the API server sends to Ostiary's Pods: open the port of --webhook-address for it, or run Ostiary with hostNetwork"},
		{"Client.Timeout", ReasonTimedOut, "a firewall or a NetworkPolicy drops what the API server sends to Ostiary's Pods: open the port of --webhook-address for it, or run Ostiary with hostNetwork"},
		{"i/o timeout", ReasonTimedOut, "a firewall or a NetworkPolicy drops what the API server sends to Ostiary's Pods: open the port of --webhook-address for it, or run Ostiary with hostNetwork"},
		{"not found", ReasonServiceNotFound, "create the Service, or correct --webhook-service"},
	} {
		if strings.Contains(text, known.sign) {
			return known.reason, known.advice
		}
	}
	return ReasonCallFailed, "see the log of Ostiary's replicas and of the API server"
}

// sum is the verdict of all answers: one API server that does not reach Ostiary
// is enough for False, and one that cannot be asked is no reason against True.
func sum(answers []answer) Verdict {
	out := unproven()
	for _, a := range answers {
		v := a.verdict
		if a.address != "" && v.Status == metav1.ConditionFalse {
			v.Message = a.address + ": " + v.Message
		}
		if out.Reason == ReasonNotProven || rank(v.Status) > rank(out.Status) {
			out = v
		}
	}
	if out.Status == metav1.ConditionTrue {
		out.Message = "API servers reach Ostiary: a canary was called"
	}
	return out
}

func rank(s metav1.ConditionStatus) int {
	switch s {
	case metav1.ConditionFalse:
		return 2
	case metav1.ConditionTrue:
		return 1
	}
	return 0
}
