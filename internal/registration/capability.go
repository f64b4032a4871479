package registration

import (
	"errors"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// capabilityLength is the number of characters of a capability: the secret first
// segment of every path that API servers call Ostiary at. A caller that does not
// know it is no API server.
const capabilityLength = 32

// SplitPath divides a path into the capability, which is not verified, and the
// path that follows it. The capability is empty where the path has none.
func SplitPath(path string) (capability, rest string) {
	if len(path) < 1+capabilityLength+1 || path[0] != '/' || path[1+capabilityLength] != '/' {
		return "", path
	}
	return path[1 : 1+capabilityLength], path[1+capabilityLength:]
}

// capabilityOf is the capability in what an API server is told to call.
func (e Endpoint) capabilityOf(config admissionregistrationv1.WebhookClientConfig) string {
	var path string
	switch {
	case config.Service != nil && config.Service.Path != nil:
		path = *config.Service.Path
	case config.URL != nil:
		path = strings.TrimPrefix(*config.URL, strings.TrimRight(e.URL, "/"))
	}
	capability, _ := SplitPath(path)
	return capability
}

// withCapability is the path that API servers call. It is the path itself where
// there is no capability yet; such a path is never called, because there is no
// certificate then either.
func withCapability(capability, path string) string {
	if capability == "" {
		return path
	}
	return "/" + capability + path
}

// ConcealError is an error with Conceal applied to everything that it says, the
// text of an API status included. Nil stays nil.
func ConcealError(err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	concealed := *status
	concealed.ErrStatus = *status.ErrStatus.DeepCopy()
	concealed.ErrStatus.Message = Conceal(status.ErrStatus.Message)
	if details := concealed.ErrStatus.Details; details != nil {
		for i := range details.Causes {
			details.Causes[i].Message = Conceal(details.Causes[i].Message)
		}
	}
	return &concealed
}

var capabilities = regexp.MustCompile(`/[a-z2-7]{32}/(validate|mutate|canary)`)

// Conceal replaces capabilities in a text. API servers quote the URL of a
// webhook when a call fails, and the path when they refuse a configuration.
// Whatever they say passes through here before it is logged or shown.
func Conceal(text string) string { return capabilities.ReplaceAllString(text, "/.../$1") }
