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

// AnnotationEpoch is the epoch of the trust bundle in a configuration. What is
// of an older epoch must not take its place.
const AnnotationEpoch = "admission.ostiary.dev/trust-epoch"

// maxEpoch keeps an edited annotation from leading anywhere.
const maxEpoch = 1 << 31

// Epoch is the epoch of the trust bundle in a configuration; 0 if it has none.
func Epoch(c Configuration) int64 {
	epoch, err := strconv.ParseInt(c.GetAnnotations()[AnnotationEpoch], 10, 64)
	if err != nil || epoch < 0 || epoch > maxEpoch {
		return 0
	}
	return epoch
}

// CheckEpoch is an error where what is wanted is of an older epoch than what there
// is: who wants it has yet to learn of a trust bundle that somebody else has
// published, and would write what nobody serves for any more.
func CheckEpoch(want, have Configuration) error {
	if own, epoch := Epoch(want), Epoch(have); epoch > own {
		return fmt.Errorf("the trust bundle of configuration %s is of epoch %d: this replica knows %d", have.GetName(), epoch, own)
	}
	return nil
}

// setEpoch says in a configuration of which epoch its bundle is. Every one that
// calls Ostiary has to: where there are no policies, those of Ostiary itself are
// all that remembers the epoch beside the Secret.
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

// Trust is what API servers are told to trust Ostiary with.
type Trust struct {
	// Bundles are the bundles of every webhook that calls the endpoint, each once.
	Bundles [][]byte
	// Capabilities are those in the paths of these webhooks, each once. A path
	// without one counts as the empty one.
	Capabilities []string
	// Epoch is the highest of the configurations that hold them.
	Epoch int64
}

// TrustIn finds in configurations what concerns an endpoint.
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

// NeedsTouch reports whether an API server that goes on by what there is calls
// others than it is to, or otherwise: webhooks differ in more than bundles, or in
// bundles that share no certificate. Where they share one, it accepts what is served.
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

// certificates are the blocks of a bundle.
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
