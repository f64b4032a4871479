package gatekeeper

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/ostiary/ostiary/internal/migrate/celtext"
)

// locationNode is one part of a location, as "containers[name: *]".
type locationNode struct {
	name string
	// key and value select elements of a list; an empty key is no list.
	key, value string
}

func (n locationNode) isGlob() bool { return n.key != "" && n.value == wildcard }

// locationPart matches the next part of a location: a name, with or without quotes, and the key
// and the value of a list.
var locationPart = regexp.MustCompile(
	`^(?:"([^"]*)"|'([^']*)'|([^.\[\]"' ]+))` +
		`(?:\[\s*(?:"([^"]*)"|'([^']*)'|([^:\]"' ]+))\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\]"' ]+))\s*\])?(?:\.|$)`,
)

// parseLocation parses the location of a mutator.
func parseLocation(text string) (out []locationNode, err error) {
	for rest := text; rest != ""; {
		found := locationPart.FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("write a location as spec.containers[name: *].image, got %q", text)
		}
		n := locationNode{
			name:  found[1] + found[2] + found[3],
			key:   found[4] + found[5] + found[6],
			value: found[7] + found[8] + found[9],
		}
		if rest = rest[len(found[0]):]; rest == "" && strings.HasSuffix(found[0], ".") || n.name == "" {
			return nil, fmt.Errorf("write a location as spec.containers[name: *].image, got %q", text)
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, errors.New("the location is empty")
	}
	return out, nil
}

// isExpressible reports whether the location can be written in CEL: every field has a name
// of CEL, the merge key of lists is name, and at most one of them has a wildcard.
func isExpressible(location []locationNode) bool {
	globs := 0
	for _, n := range location {
		if n.isGlob() {
			globs++
		}
		if !celtext.IsVariable(n.name) || n.key != "" && n.key != "name" {
			return false
		}
	}
	return globs <= 1 && location[len(location)-1].key == ""
}
