package gatekeeper

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// Parts of the name of an image as Gatekeeper reads it. The first part of the path is a
// registry if it has a dot or a port or is localhost. The rest begins at the first ":" or "@".
const (
	registryPattern = `^(?:(?:[^/]*[.:][^/]*|localhost)/)?`
	pathPattern     = `[^:@]*`
)

// assignImage replaces parts of the name of an image. Others keep their value.
func (b *builder) assignImage(m *mutator, location []locationNode) {
	p := &m.Spec.Parameters
	leaveOut := func(parameter, why string) {
		b.leaveOut(
			"spec.parameters."+parameter,
			why,
			"correct it in the source",
		)
	}
	switch {
	case p.AssignDomain+p.AssignPath+p.AssignTag == "":
		leaveOut("assignDomain", "none of assignDomain, assignPath and assignTag is set")
		return
	case p.AssignTag != "" && !strings.HasPrefix(p.AssignTag, ":") && !strings.HasPrefix(p.AssignTag, "@"):
		leaveOut("assignTag", "it begins with neither : nor @")
		return
	case p.AssignDomain == "" && regexp.MustCompile(registryPattern).FindString(p.AssignPath) != "":
		leaveOut("assignPath", "it begins with a registry, and assignDomain is not set")
		return
	}
	b.assign(m, location, func(current string) string {
		return fmt.Sprintf(`[%s.orValue("")].map(image, %s)[0]`, current, p.image())
	})
}

// image returns the name of the image with the parts, as CEL.
func (p *mutatorParameters) image() string {
	registry, beforeTag := celtext.QuoteText(registryPattern), celtext.QuoteText(registryPattern+pathPattern)
	var parts []string
	switch {
	case p.AssignDomain != "":
		parts = append(parts, celtext.QuoteText(p.AssignDomain+"/"))
	case p.AssignPath != "":
		parts = append(parts, fmt.Sprintf("image.find(%s)", registry))
	}
	switch {
	case p.AssignPath != "":
		parts = append(parts, celtext.QuoteText(p.AssignPath))
	case p.AssignDomain == "":
		parts = append(parts, fmt.Sprintf("image.find(%s)", beforeTag)) // with the registry
	case p.AssignTag == "":
		return parts[0] + fmt.Sprintf(" + image.substring(image.find(%s).size())", registry) // with the tag
	default:
		parts = append(
			parts,
			fmt.Sprintf(
				"image.substring(image.find(%s).size()).find(%s)",
				registry,
				celtext.QuoteText("^"+pathPattern),
			),
		)
	}
	if p.AssignTag != "" {
		return strings.Join(append(parts, celtext.QuoteText(p.AssignTag)), " + ")
	}
	return strings.Join(append(parts, fmt.Sprintf("image.substring(image.find(%s).size())", beforeTag)), " + ")
}
