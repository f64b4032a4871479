package rehearsal

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/advice"
	"github.com/ostiary/ostiary/internal/apiresources"
)

// detour is a subresource through which clients write fields of a resource.
type detour struct {
	group, resource, subresource string // "" is any group, and any resource with the subresource
	paths                        []string
	// always reports that updates of the resource itself cannot change the fields, so that a policy
	// which matches CREATE alone is incomplete too.
	always bool
	// alone reports that the subresource has the fields, and few others.
	alone  bool
	advice string
}

// detourTable lists the fields that validations read and that clients also write elsewhere.
func detourTable() []detour {
	container := func(list string, names ...string) (out []string) {
		for _, name := range names {
			out = append(out, "object.spec."+list+"[*]."+name)
		}
		return out
	}
	return []detour{
		{subresource: "scale", paths: []string{"object.spec.replicas"}, alone: true,
			advice: "there object is a Scale, with object.spec.?replicas.orValue(0) and no other fields"},
		{resource: "pods", subresource: "resize", always: true,
			paths: slices.Concat(container("containers", "resources", "resizePolicy"), container("initContainers",
				"resources"), []string{"object.spec.resources"}),
			advice: "there object is the Pod"},
		{resource: "pods", subresource: "ephemeralcontainers", always: true,
			paths: slices.Concat(container("containers", "image", "imagePullPolicy", "securityContext", "env", "envFrom",
				"command", "args", "volumeMounts"),
				[]string{"object.spec.ephemeralContainers"}),
			advice: "there object is the Pod, with object.spec.?ephemeralContainers.orValue([])"},
	}
}

// detours warns about fields that clients write through subresources which no rule matches.
func detours(spec *v1alpha1.WebhookPolicySpec, targets []target, served apiresources.Lists,
	read *readings) (out []advice.Warning) {
	if !spec.Refuses() {
		return nil
	}
	for _, d := range detourTable() {
		names := d.unmatched(targets, served)
		if len(names) == 0 {
			continue
		}
		for i := range read.expressions {
			e := &read.expressions[i]
			if at := slices.IndexFunc(d.paths, e.reads); e.validation && at >= 0 && (!d.alone || !e.readsMore()) {
				out = append(out, advice.Warning{Field: e.field, Text: d.warning(d.paths[at], names)})
				break
			}
		}
	}
	return append(out, earlyStatus(spec, targets, served, read)...)
}

// warning returns the text about a field that clients write through subresources. API servers can cut
// a warning after 256 bytes, so it names the first of them.
func (d *detour) warning(path string, names []string) string {
	through := names[0]
	if more := len(names) - 1; more > 0 {
		through += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("clients also write %s through %s, which no rule matches: add a rule with UPDATE; %s",
		strings.TrimPrefix(path, "object."), through, d.advice)
}

// unmatched returns the subresources by which clients go around a policy.
func (d *detour) unmatched(targets []target, served apiresources.Lists) (names []string) {
	for i := range targets {
		t := &targets[i]
		isMatched := func(o target) bool {
			return o.Served == t.Served && o.resource == t.resource && o.subresource == d.subresource &&
				o.has(admissionv1.Update)
		}
		if !t.excluded && d.goesAround(t) && serves(served, t, d.subresource) && !slices.ContainsFunc(targets, isMatched) {
			names = append(names, t.resource+"/"+d.subresource)
		}
	}
	return names
}

func (d *detour) goesAround(t *target) bool {
	return t.subresource == "" && t.named && (d.resource == "" || d.resource == t.resource &&
		t.Served.Group == d.group) &&
		(t.has(admissionv1.Update) || d.always && t.has(admissionv1.Create))
}

// readsMore reports whether an expression reads fields that a Scale does not have: without them it
// could not be evaluated there.
func (e *reading) readsMore() bool {
	for path := range e.paths {
		if strings.HasPrefix(path, "object.") && path != "object.spec" && !strings.HasPrefix(path,
			"object.spec.replicas") && path != "object.metadata.name" &&
			path != "object.metadata.namespace" && path != "object.kind" && path != "object.metadata" {
			return true
		}
	}
	return false
}

func serves(served apiresources.Lists, t *target, subresource string) bool {
	for i := range served[t.Served] {
		if served[t.Served][i].Name == t.resource+"/"+subresource {
			return true
		}
	}
	return false
}

// earlyStatus warns about validations that read the status of objects which have none yet.
func earlyStatus(spec *v1alpha1.WebhookPolicySpec, targets []target, served apiresources.Lists,
	read *readings) (out []advice.Warning) {
	for i := range targets {
		if t := &targets[i]; !slices.Equal(t.operations, []admissionv1.Operation{admissionv1.Create}) ||
			t.subresource != "" || !t.named || !serves(served, t, "status") {
			return nil
		}
	}
	for i := range spec.Validations {
		if len(targets) == 0 {
			break
		}
		at := field.NewPath("spec", "validations").Index(i).Child("expression").String()
		if read.at(at).reads("object.status") {
			out = append(out, advice.Warning{Field: at, Text: fmt.Sprintf(
				"new %s have no status yet: match UPDATE of %q, through which controllers write it", targets[0].resource,
				targets[0].resource+"/status")})
		}
	}
	return out
}
