package celpolicies

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
)

// original keeps the source as a native policy, before its expressions are rewritten.
func (b *builder) original(o *conversion.Original) {
	b.Original = o
	if strings.HasPrefix(b.Source.Kind, "Namespaced") {
		namespace := cmp.Or(b.Source.Metadata.Namespace, metav1.NamespaceDefault)
		o.Matches = func(r conversion.OriginalRequest) bool { return r.InNamespace != nil && r.Namespace == namespace }
	}
	if len(b.exceptions) > 0 {
		b.unlike("a PolicyException names the policy")
	}
	for i, c := range b.common.MatchConditions {
		if celtext.Reads(c.Expression, "namespaceObject") {
			b.unlike(
				fmt.Sprintf(
					"spec.matchConditions[%d].expression reads namespaceObject, which only Kyverno has there",
					i,
				),
			)
		}
	}
}

// unlike notes why a native policy does not decide like the source; the first reason counts.
func (b *builder) unlike(why string) {
	if b.Original != nil {
		b.Original.Unlike = cmp.Or(b.Original.Unlike, why)
	}
}
