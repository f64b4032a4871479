// Package replicas finds the running replicas of Ostiary, and the policies and certificate
// of each. Every replica reports them in its own Lease.
package replicas

import (
	"fmt"
	"strconv"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/versionskew"
)

// The annotations of a replica's Lease.
const (
	// annotationLoaded is the prefix of an annotation for each resource.
	annotationLoaded          = v1alpha1.GroupName + "/loaded-"
	annotationKnown           = v1alpha1.GroupName + "/known-fields"
	annotationWithheld        = v1alpha1.GroupName + "/withheld-fields"
	annotationUnloaded        = v1alpha1.GroupName + "/unloaded-exceptions"
	annotationUnready         = v1alpha1.GroupName + "/unready-lookups"
	annotationExceptionUses   = v1alpha1.GroupName + "/exception-uses"
	annotationEpoch           = v1alpha1.GroupName + "/serving-epoch"
	annotationFingerprint     = v1alpha1.GroupName + "/serving-fingerprint"
	annotationBadCertificates = v1alpha1.GroupName + "/bad-certificate-alerts"
	annotationViolations      = v1alpha1.GroupName + "/violations"
)

// Report is the state of a replica.
type Report struct {
	// Report says what the replica has loaded and which fields of the API it knows.
	versionskew.Report
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
	for _, resource := range versionskew.Resources() {
		if version := r.Loaded[resource]; version != "" {
			out[annotationLoaded+resource.String()] = version
		}
	}
	if r.Known != "" {
		out[annotationKnown] = r.Known
	}
	if r.Withheld != "" {
		out[annotationWithheld] = r.Withheld
	}
	if r.Unloaded != "" {
		out[annotationUnloaded] = r.Unloaded
	}
	if r.Unready != "" {
		out[annotationUnready] = r.Unready
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
	r := Report{Fingerprint: annotations[annotationFingerprint]}
	r.Known = annotations[annotationKnown]
	r.Withheld = annotations[annotationWithheld]
	r.Unloaded = annotations[annotationUnloaded]
	r.Unready = annotations[annotationUnready]
	for _, resource := range versionskew.Resources() {
		r.Loaded[resource] = annotations[annotationLoaded+resource.String()]
	}
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

// Peers returns what the other replicas know, in comparison with one replica.
func Peers(live []Replica, self string, own versionskew.Version) versionskew.Peers {
	peers := make([]versionskew.Peer, 0, len(live))
	for _, r := range live {
		if r.Name != self {
			peers = append(peers, versionskew.Peer{Name: r.Name, Report: r.Report.Report})
		}
	}
	return versionskew.NewPeers(own, peers)
}
