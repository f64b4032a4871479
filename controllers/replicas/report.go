// Package replicas finds the running replicas of Ostiary, and the policies and certificate
// of each. Every replica reports them in its own Lease.
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
	annotationViolations      = v1alpha1.GroupName + "/violations"
)

// Report is the state of a replica.
type Report struct {
	// Policies is the resource version up to which the replica has loaded all changes of
	// policies; "" before the first load.
	Policies string
	// Epoch is the epoch of the served certificate.
	Epoch int64
	// Fingerprint is the fingerprint of the served leaf.
	Fingerprint string
	// BadCertificates counts the handshakes in which a client rejected the served
	// certificate.
	BadCertificates uint64
}

// annotations returns the annotations of the Lease. It omits unknown values.
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

// reportOf reads the annotations of a Lease. With an error the report is empty, so that
// no replica relies on it.
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
