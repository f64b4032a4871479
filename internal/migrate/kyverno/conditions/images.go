package conditions

import (
	"regexp"

	"github.com/kyverno/go-jmespath"

	ce "github.com/ostiary/ostiary/internal/migrate/celtext"
)

// elementName matches the name of the element of foreach as the name of a member.
var elementName = regexp.MustCompile(`^\{\{-?\s*element0?\.name\s*\}\}$`)

// images converts images.containers.*.tag, which are parts of the images of all containers, and
// images.containers."{{element.name}}", which is that of the element of foreach. It returns false for
// other nodes.
func (s *Scope) images(n jmespath.ASTNode) (v Value, ok bool, err error) {
	if _, isVariable := s.Variables["images"]; isVariable || len(n.Children) != 2 || s.Containers == nil {
		return Value{}, false, nil
	}
	containers, source, ok := s.Containers(imageListOf(n.Children[0]))
	if !ok {
		return Value{}, false, nil
	}
	switch n.NodeType {
	case jmespath.ASTValueProjection:
		if n.Children[1].NodeType != jmespath.ASTField {
			return Value{}, false, nil
		}
		v, err := s.stream(containers.orNull())
		if err != nil {
			return Value{}, true, err
		}
		element := imageOf(*v.stream.element.place)
		s.noteInvalidImages()
		v.stream.where = v.stream.element.place.Field("image").Present()
		v.stream.element, err = s.compile(n.Children[1], &element)
		return v, true, err
	case jmespath.ASTSubexpression:
		name, isName := n.Children[1].Value.(string)
		element := s.Variables["element"]
		if !isName || !elementName.MatchString(name) || element.place == nil || s.List != source {
			return Value{}, false, nil
		}
		s.noteInvalidImages()
		return imageOf(*element.place), true, nil
	}
	return Value{}, false, nil
}

// noteInvalidImages reports that names are not checked: API servers accept any text.
func (s *Scope) noteInvalidImages() {
	s.note("an image whose name is not valid, which no node can run, does not fail the rule")
}

// imageListOf returns the name of the list in images.containers, or empty.
func imageListOf(n jmespath.ASTNode) string {
	if n.NodeType != jmespath.ASTSubexpression || len(n.Children) != 2 {
		return ""
	}
	of, list := n.Children[0], n.Children[1]
	if of.NodeType != jmespath.ASTField || of.Value != "images" || list.NodeType != jmespath.ASTField {
		return ""
	}
	name, _ := list.Value.(string)
	return name
}

// withRegistry matches names of images that begin with a registry; others are in docker.io.
const withRegistry = `^(?:[^/]*[.:A-Z][^/]*|localhost)/`

// imageOf returns the parts of the name of a container's image, as Kyverno parses it.
func imageOf(container ce.Place) Value {
	image := container.Field("image").Strict()
	hasRegistry := ce.Call(image, "matches", ce.Quote(withRegistry))
	first := ce.Term(ce.Call(image, "split", ce.Quote("/")).String() + "[0]")
	after := ce.Call(image, "substring", ce.Raw(ce.Call(image, "indexOf", ce.Quote("/")).String()+" + 1", ce.Addition))
	rest := ce.Term("(" + ce.If(hasRegistry, after, image).String() + ")")
	beforeDigest := ce.Term(ce.Call(rest, "split", ce.Quote("@")).String() + "[0]")
	path := ce.Call(rest, "find", ce.Quote("^[^:@]*"))
	hasDigest, hasTag := ce.Call(image, "contains", ce.Quote("@")), ce.Call(beforeDigest, "contains", ce.Quote(":"))
	tag := ce.Term(ce.Call(beforeDigest, "split", ce.Quote(":")).String() + "[1]") // fails without one
	tag = ce.If(ce.Or(hasTag, hasDigest), tag, ce.Quote("latest"))
	digest := ce.Term(ce.Call(image, "split", ce.Quote("@")).String() + "[1]")
	text := ce.ShapeOfKind(ce.KindString)
	sometimes := func(e, when ce.Expression) Value {
		return Value{expression: e, shape: text, when: when, absent: absentField, fails: true}
	}
	return Value{expression: image, members: map[string]Value{
		"registry": computedValue(ce.If(hasRegistry, first, ce.Quote("docker.io")), text),
		"path":     computedValue(path, text),
		"name":     computedValue(ce.Call(path, "find", ce.Quote("[^/]*$")), text),
		"tag":      sometimes(tag, ce.Or(hasTag, ce.Not(hasDigest))),
		"digest":   sometimes(digest, hasDigest),
	}}
}
