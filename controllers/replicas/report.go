// Package replicas tells which replicas of Ostiary are alive and what each of
// them serves. Every replica keeps a Lease of its own and says it there.
package replicas

import (
	"fmt"
	"strconv"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// The annotations of a replica's Lease.
const (
	annotationPolicies        = v1alpha1.GroupName + "/loaded-policies"
	annotationEpoch           = v1alpha1.GroupName + "/serving-epoch"
	annotationFingerprint     = v1alpha1.GroupName + "/serving-fingerprint"
	annotationBadCertificates = v1alpha1.GroupName + "/bad-certificate-alerts"
)

// Report is what a replica says of itself.
type Report struct {
	// Policies is a resource version: the replica has loaded every change of a
	// policy up to it. It is empty while the replica has loaded nothing.
	Policies string
	// Epoch is that of the certificate that the replica serves.
	Epoch int64
	// Fingerprint is that of the leaf that the replica serves.
	Fingerprint string
	// BadCertificates counts the handshakes that API servers broke off because
	// they do not trust what the replica serves.
	BadCertificates uint64
}

// annotations are the report as a Lease holds it. What is not known is left out.
func (r Report) annotations() map[string]string {
	out := map[string]string{}
	if r.Policies != "" {
		out[annotationPolicies] = r.Policies
	}
	if r.Epoch != 0 {
		out[annotationEpoch] = strconv.FormatInt(r.Epoch, 10)
	}
	if r.Fingerprint != "" {
		out[annotationFingerprint] = r.Fingerprint
	}
	if r.BadCertificates != 0 {
		out[annotationBadCertificates] = strconv.FormatUint(r.BadCertificates, 10)
	}
	return out
}

// reportOf reads the report that a Lease holds. An error leaves out what cannot
// be read, so that such a replica counts as one that serves nothing.
func reportOf(annotations map[string]string) (Report, error) {
	r := Report{Policies: annotations[annotationPolicies], Fingerprint: annotations[annotationFingerprint]}
	var errEpoch, errCount error
	if s := annotations[annotationEpoch]; s != "" {
		r.Epoch, errEpoch = strconv.ParseInt(s, 10, 64)
	}
	if s := annotations[annotationBadCertificates]; s != "" {
		r.BadCertificates, errCount = strconv.ParseUint(s, 10, 64)
	}
	switch {
	case errEpoch != nil:
		return Report{}, fmt.Errorf("reading annotation %s: %w", annotationEpoch, errEpoch)
	case errCount != nil:
		return Report{}, fmt.Errorf("reading annotation %s: %w", annotationBadCertificates, errCount)
	}
	return r, nil
}
