package registration

import (
	"errors"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// capabilityLength is the number of characters of a capability: the secret first
// segment of all paths at which API servers call Ostiary. It authenticates API
// servers.
const capabilityLength = 32

// SplitPath splits a path into the capability, which is not verified, and the
// rest. The capability is empty if the path has none.
func SplitPath(path string) (capability, rest string) {
	if len(path) < 1+capabilityLength+1 || path[0] != '/' || path[1+capabilityLength] != '/' {
		return "", path
	}
	return path[1 : 1+capabilityLength], path[1+capabilityLength:]
}

// capabilityOf returns the capability in the path of a clientConfig.
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

// withCapability returns the path that API servers call. Without a capability it is
// the path itself: no API server calls it, because there is no certificate yet
// either.
func withCapability(capability, path string) string {
	if capability == "" {
		return path
	}
	return "/" + capability + path
}

// ConcealError returns an error whose text and API status contain no capability. It
// returns nil for nil.
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
// webhook if a call fails, and the path if they reject a configuration. Use it for
// each message of an API server before the message is logged or published.
func Conceal(text string) string { return capabilities.ReplaceAllString(text, "/.../$1") }
