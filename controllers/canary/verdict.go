// Package canary proves that API servers reach Ostiary: it sends dry-run requests
// that a canary webhook denies. Such a request passes through API server, Service,
// TLS and a replica. Only the leader runs it.
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

// Reasons of the condition Reachable, and of the events about it.
const (
	// ReasonReachable means that API servers reach Ostiary.
	ReasonReachable = "Reachable"
	// ReasonPending means that no probe has finished yet.
	ReasonPending = "Pending"
	// ReasonProbeFailed means that no API server has processed a canary request.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonNotCalled means that an API server does not call Ostiary.
	ReasonNotCalled = "NotCalled"
	// ReasonConnectionRefused and the following mean that the call fails.
	ReasonConnectionRefused = "ConnectionRefused"
	ReasonTimedOut          = "TimedOut"
	ReasonNotTrusted        = "CertificateNotTrusted"
	ReasonNoEndpoints       = "NoEndpoints"
	ReasonNotFound          = "NotFound" // the Service or the host
	ReasonNoRoute           = "NoRoute"
	ReasonCallFailed        = "CallFailed"
)

// Verdict is the result for one phase: whether API servers reach Ostiary.
type Verdict struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

// sameReason reports whether two verdicts have the same status and reason.
// Messages of API servers contain ports and times; a change of them is no news.
func (v Verdict) sameReason(other Verdict) bool {
	return v.Status == other.Status && v.Reason == other.Reason
}

func notProbed() Verdict {
	return Verdict{metav1.ConditionUnknown, ReasonPending, "no probe has tested yet whether API servers reach Ostiary"}
}

// result is the verdict of one canary request to one API server.
type result struct {
	address string
	verdict Verdict
}

// verdictOf returns the verdict for the outcome of a canary request.
func verdictOf(phase registration.Phase, nonce string, err error) Verdict {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return Verdict{metav1.ConditionFalse, ReasonNotCalled,
			"the API server does not call the canary: it has not received its configuration yet, " +
				"or runs without the admission plugin " + plugin(phase)}
	case !errors.As(err, &status):
		return Verdict{
			Status:  metav1.ConditionUnknown,
			Reason:  ReasonProbeFailed,
			Message: "the API server does not answer the canary's request: " + registration.Conceal(err.Error()),
		}
	}
	message := registration.Conceal(status.Status().Message)
	switch {
	case status.Status().Code == http.StatusForbidden && strings.HasSuffix(message, registration.CanaryMessage(nonce)):
		return Verdict{metav1.ConditionTrue, ReasonReachable, "the API server reaches Ostiary: a canary was called"}
	case status.Status().Code == http.StatusInternalServerError && strings.Contains(message, phase.CanaryWebhook()):
		reason, advice := cause(message)
		return Verdict{metav1.ConditionFalse, reason, fmt.Sprintf("the API server does not reach Ostiary: %s: %s", message, advice)}
	}
	return Verdict{
		Status:  metav1.ConditionUnknown,
		Reason:  ReasonProbeFailed,
		Message: "the API server rejects the canary's request before it calls Ostiary: " + message,
	}
}

const droppedAdvice = "a firewall or a NetworkPolicy drops connections from the API server to Ostiary's Pods: open " +
	"the port of --webhook-address for it, or run Ostiary with hostNetwork"

// timedOutAdvice names two causes, because the API server's message is the same: it
// retries after a 503 with Retry-After until the timeout, and does not show the 503.
const timedOutAdvice = droppedAdvice +
	"; or replicas answer 503 until the timeout: check the Pods' /readyz and the metric ostiary_webhook_shed_total"

func plugin(phase registration.Phase) string {
	if phase == registration.PhaseMutate {
		return "MutatingAdmissionWebhook"
	}
	return "ValidatingAdmissionWebhook"
}

// cause returns the usual cause of an API server's message, and advice. The
// message is another program's text and has no structure.
func cause(text string) (reason, advice string) {
	for _, known := range []struct{ sign, reason, advice string }{
		{
			sign:   "connection refused",
			reason: ReasonConnectionRefused,
			advice: "no process listens on the called address: compare the Service's port with --webhook-address, and check that the Pods run",
		},
		{sign: "no endpoints available", reason: ReasonNoEndpoints, advice: "no replica is ready: check the Pods' /readyz"},
		{
			sign:   "x509: ",
			reason: ReasonNotTrusted,
			advice: "the certificate is not the one that Ostiary serves: check whether the Service selects other Pods or a proxy terminates TLS",
		},
		{
			sign:   "tls: ",
			reason: ReasonNotTrusted,
			advice: "the TLS handshake fails: check whether the Service selects other Pods or a proxy terminates TLS",
		},
		{
			sign:   "no such host",
			reason: ReasonNotFound,
			advice: "the API server cannot resolve the name: correct --webhook-url",
		},
		{
			sign:   "no route to host",
			reason: ReasonNoRoute,
			advice: "a firewall rejects connections from the API server to Ostiary's Pods: open the port of --webhook-address, " +
				"or run Ostiary with hostNetwork",
		},
		{sign: "deadline exceeded", reason: ReasonTimedOut, advice: timedOutAdvice},
		{sign: "Client.Timeout", reason: ReasonTimedOut, advice: timedOutAdvice},
		{sign: "i/o timeout", reason: ReasonTimedOut, advice: droppedAdvice},
		{sign: "not found", reason: ReasonNotFound, advice: "create the Service, or correct --webhook-service"},
	} {
		if strings.Contains(text, known.sign) {
			return known.reason, known.advice
		}
	}
	return ReasonCallFailed, "check the logs of Ostiary's replicas and of the API server"
}

// combine returns the verdict of all results: False if one API server does not
// reach Ostiary, otherwise True if one does, otherwise Unknown.
func combine(results []result) Verdict {
	out := notProbed()
	for _, a := range results {
		v := a.verdict
		if a.address != "" && v.Status == metav1.ConditionFalse {
			v.Message = a.address + ": " + v.Message
		}
		if out.Reason == ReasonPending || rank(v.Status) > rank(out.Status) {
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
