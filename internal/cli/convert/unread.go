package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/ostiary/ostiary/internal/apiresources"
	"github.com/ostiary/ostiary/internal/cli/output"
	"github.com/ostiary/ostiary/internal/load"
	"github.com/ostiary/ostiary/internal/migrate/conversion"
	"github.com/ostiary/ostiary/internal/migrate/verify"
	"github.com/ostiary/ostiary/internal/offline"
)

// Unread is the part of the input that is in no result, or whose result was not evaluated.
type Unread struct {
	// Skipped cannot be read.
	Skipped []SkippedInput `json:"skipped,omitempty"`
	// Others are kinds of objects that are no policies.
	Others []string `json:"others,omitempty"`
	// NotRehearsed are results that were not, or not completely, evaluated with ordinary objects.
	NotRehearsed []string `json:"notRehearsed,omitempty"`
}

// SkippedInput is a file or a part of it that cannot be read.
type SkippedInput struct {
	Position load.Position `json:"position"`
	Problem  string        `json:"problem"`
}

func (r *result) unread() Unread {
	out := Unread{NotRehearsed: r.unrehearsed}
	for _, problem := range r.skipped {
		s := SkippedInput{Problem: problem.Error()}
		var located *load.Error
		if errors.As(problem, &located) {
			s.Position, s.Problem = located.Position, located.Text
		}
		out.Skipped = append(out.Skipped, s)
	}
	for _, kind := range r.others {
		out.Others = append(out.Others, kind.String())
	}
	return out
}

// text says how much is not in the result. The problems themselves are on stderr.
func (u *Unread) text() string {
	text := ""
	if n := len(u.Skipped); n > 0 {
		text = output.Count(n, "part of the input is", "parts of the input are") +
			" skipped: the lines with \"skipping\" say why\n"
	}
	if len(u.Others) > 0 {
		text += "no policies of these sources: " + output.Printable(strings.Join(u.Others, ", ")) + "\n"
	}
	if n := len(u.NotRehearsed); n > 0 {
		text += output.Count(n, "result was", "results were") + " not evaluated with all ordinary objects: " +
			output.Printable(strings.Join(u.NotRehearsed[:min(n, maxOthers)], ", "))
		if more := n - maxOthers; more > 0 {
			text += fmt.Sprintf(" and %d more, which --report json lists", more)
		}
		text += "\n"
	}
	return text
}

// otherKind counts the objects of a kind that is no policy.
type otherKind struct {
	name    string
	objects int
	first   load.Position
}

// String names the kind and one of its objects.
func (k *otherKind) String() string { return fmt.Sprintf("%d %s (%s)", k.objects, k.name, k.first) }

// maxOthers is the maximum number of kinds, and of results, that a line of the report names.
const maxOthers = 20

// othersOf returns the kinds of objects that neither a source nor this command reads.
func othersOf(objects []load.Object, sources []conversion.Source) (out []otherKind) {
	for i := range objects {
		kind := objects[i].GroupVersionKind().GroupKind()
		if slices.Contains([]string{"Namespace", "ConfigMap", "CustomResourceDefinition"}, kind.Kind) ||
			verify.Owns(kind) || slices.ContainsFunc(sources, func(s conversion.Source) bool { return s.Owns(kind) }) {
			continue
		}
		at := slices.IndexFunc(out, func(k otherKind) bool { return k.name == kind.String() })
		switch {
		case at >= 0:
			out[at].objects++
		case len(out) == maxOthers:
			out[maxOthers-1].name = "other kinds"
			out[maxOthers-1].objects++
		default:
			out = append(out, otherKind{name: kind.String(), objects: 1, first: objects[i].At("")})
		}
	}
	return out
}

// readableDefinitions returns objects without the CustomResourceDefinitions that cannot be read.
func readableDefinitions(objects []load.Object, skip func(error)) []load.Object {
	return slices.DeleteFunc(objects, func(o load.Object) bool {
		if o.GroupVersionKind() != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
			return false
		}
		d := &apiextensionsv1.CustomResourceDefinition{}
		err := o.Read(d)
		if err == nil {
			_, err = offline.NewAPIsOf(apiresources.Lists{}, nil, []*apiextensionsv1.CustomResourceDefinition{d})
		}
		var located *load.Error
		if err != nil && !errors.As(err, &located) {
			err = o.Errorf("", "%v", err)
		}
		if err != nil {
			skip(err)
		}
		return err != nil
	})
}
