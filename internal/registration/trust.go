package registration

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// AnnotationEpoch is the epoch of the trust bundle in a configuration. A bundle with
// an older epoch must not replace it.
const AnnotationEpoch = "admission.ostiary.dev/trust-epoch"

// maxEpoch is the highest valid epoch. An annotation with a higher one was edited.
const maxEpoch = 1 << 31

// Epoch returns the epoch of the trust bundle in a configuration, 0 if it has none.
func Epoch(c Configuration) int64 {
	epoch, err := strconv.ParseInt(c.GetAnnotations()[AnnotationEpoch], 10, 64)
	if err != nil || epoch < 0 || epoch > maxEpoch {
		return 0
	}
	return epoch
}

// CheckEpoch returns an error if a planned configuration has an older epoch than the
// observed one: another replica has published a newer trust bundle, which this
// replica has not read yet.
func CheckEpoch(want, have Configuration) error {
	if own, epoch := Epoch(want), Epoch(have); epoch > own {
		return fmt.Errorf("the trust bundle of configuration %s has epoch %d: this replica has epoch %d", have.GetName(), epoch, own)
	}
	return nil
}

// setEpoch sets the annotation with the epoch. Every configuration that calls
// Ostiary needs it: without policies, only Ostiary's own configurations and the
// Secret contain the epoch.
func setEpoch(c Configuration, epoch int64) {
	if epoch <= 0 {
		return
	}
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationEpoch] = strconv.FormatInt(epoch, 10)
	c.SetAnnotations(annotations)
}

// Trust is the trust configuration of API servers for an endpoint.
type Trust struct {
	// Bundles are the CA bundles of all webhooks that call the endpoint, without
	// duplicates.
	Bundles [][]byte
	// Capabilities are those in the paths of these webhooks, without duplicates. It
	// is empty for a path without a capability.
	Capabilities []string
	// Epoch is the highest epoch of the configurations of these webhooks.
	Epoch int64
}

// TrustIn returns the trust configuration for an endpoint in configurations.
func TrustIn(configurations []Configuration, endpoint Endpoint) Trust {
	var out Trust
	seen := map[string]bool{}
	for _, c := range configurations {
		for _, w := range Webhooks(c) {
			if !endpoint.calledBy(w.ClientConfig) {
				continue
			}
			out.Epoch = max(out.Epoch, Epoch(c))
			if capability := endpoint.capabilityOf(w.ClientConfig); !slices.Contains(out.Capabilities, capability) {
				out.Capabilities = append(out.Capabilities, capability)
			}
			if bundle := w.ClientConfig.CABundle; !seen[string(bundle)] {
				seen[string(bundle)] = true
				out.Bundles = append(out.Bundles, slices.Clone(bundle))
			}
		}
	}
	return out
}

// NeedsTouch reports whether an API server that still uses have makes other calls
// than with want, or calls that fail: webhooks differ in other fields than bundles, or
// in bundles without a common certificate. With a common certificate, it accepts the
// serving certificate. have can be nil.
func NeedsTouch(have, want Configuration) bool {
	if have == nil {
		return false
	}
	before := Webhooks(have)
	bundles := map[string][]byte{}
	for _, w := range before {
		bundles[w.Name] = w.ClientConfig.CABundle
	}
	after := slices.Clone(Webhooks(want))
	for i := range after {
		client := &after[i].ClientConfig
		if bundle, ok := bundles[after[i].Name]; ok && shareCertificate(bundle, client.CABundle) {
			client.CABundle = bundle
		}
	}
	return !sameWebhooks(after, before)
}

func shareCertificate(a, b []byte) bool {
	in := certificates(b)
	return slices.ContainsFunc(certificates(a), func(c []byte) bool {
		return slices.ContainsFunc(in, func(d []byte) bool { return bytes.Equal(c, d) })
	})
}

// certificates returns the contents of the PEM blocks of a bundle.
func certificates(bundle []byte) (out [][]byte) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, block.Bytes)
	}
	return out
}

func (e Endpoint) calledBy(config admissionregistrationv1.WebhookClientConfig) bool {
	if e.Service != nil {
		return config.Service != nil && config.Service.Namespace == e.Service.Namespace && config.Service.Name == e.Service.Name
	}
	return config.URL != nil && strings.HasPrefix(*config.URL, strings.TrimRight(e.URL, "/")+"/")
}
