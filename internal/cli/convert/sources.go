package convert

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ostiary/ostiary/internal/cli/convert/conversion"
	"github.com/ostiary/ostiary/internal/cli/convert/gatekeeper"
	"github.com/ostiary/ostiary/internal/cli/convert/kyverno/celpolicies"
	"github.com/ostiary/ostiary/internal/cli/convert/native"
)

// sources returns the converters. This is the only list of them.
func sources() []conversion.Source {
	return []conversion.Source{
		native.Source{},
		celpolicies.Source{},
		gatekeeper.Source{},
		unsupported{group: kyvernoClassic},
	}
}

// unsupported leaves out the kinds of a group that has no converter.
type unsupported struct{ group string }

// Owns implements conversion.Source.
func (u unsupported) Owns(kind schema.GroupKind) bool { return kind.Group == u.group }

// Convert implements conversion.Source.
func (u unsupported) Convert(in *conversion.Input) ([]conversion.Conversion, error) {
	out := make([]conversion.Conversion, len(in.Objects))
	for i, o := range in.Objects {
		out[i].Source = o
		out[i].LeaveOut("", "this command does not convert policies of "+u.group, "write a WebhookPolicy")
	}
	return out, nil
}
