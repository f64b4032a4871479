package webhooks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/queue"
	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// envelope is a review without its objects, as a JSON text, and the positions of the objects in the body. The objects
// may be nested as deep as the decoder of the envelope allows for the whole body.
type envelope struct {
	text                                []byte
	object, oldObject, options          span
	resource, name, namespace, userInfo span
	err                                 error
}

var (
	errNoReview = errors.New("the body must be an AdmissionReview in JSON")

	reviewNames  = []string{"apiVersion", "kind", "request"}                                                                                                                                                            //nolint:gochecknoglobals // a constant in all but name
	requestNames = []string{"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation", "userInfo", "dryRun", "object", "oldObject", "options"} //nolint:gochecknoglobals // likewise
)

// parseEnvelope locates the objects and copies the other known members. It ignores unknown members. It decodes nothing:
// decode does, and returns the error for a body that is not a review.
func parseEnvelope(body []byte) *envelope {
	e := &envelope{text: make([]byte, 0, 2<<10)}
	end, err := e.members(body, 0, "", reviewNames, func(name string, start int) (int, error) {
		if name != "request" || body[start] != '{' {
			return e.copyMember(name, body, start, new(span))
		}
		e.writeName(name)
		end, err := e.members(body, start, "/request", requestNames, func(name string, start int) (int, error) {
			switch name {
			case "object":
				return e.object.locate(body, start)
			case "oldObject":
				return e.oldObject.locate(body, start)
			case "options":
				return e.options.locate(body, start)
			case "resource":
				return e.copyMember(name, body, start, &e.resource)
			case "name":
				return e.copyMember(name, body, start, &e.name)
			case "namespace":
				return e.copyMember(name, body, start, &e.namespace)
			case "userInfo":
				return e.copyMember(name, body, start, &e.userInfo)
			}
			return e.copyMember(name, body, start, new(span))
		})
		e.text = append(e.text, ',')
		return end, err
	})
	if e.err = err; err == nil && !isBlank(body[end:]) {
		e.err = errNoReview
	}
	return e
}

// flow returns whose request the review is: that of its namespace or, if it has none, of the user. A Namespace is
// cluster-scoped, although its requests have a namespace. If a value is not a text, its flow is empty: decode will reject
// the review.
func (e *envelope) flow(body []byte) queue.Flow {
	sameName := bytes.Equal(body[e.namespace.start:e.namespace.end], body[e.name.start:e.name.end])
	if namespace := e.namespace.text(body); namespace != "" && (!sameName || !e.isOfNamespaces(body)) {
		return queue.Flow{Namespace: namespace}
	}
	return queue.Flow{User: memberOf(body, e.userInfo, "username").text(body)}
}

func (e *envelope) isOfNamespaces(body []byte) bool {
	return memberOf(body, e.resource, "resource").text(body) == "namespaces" && memberOf(body, e.resource, "group").text(body) == ""
}

// memberOf returns the first member with a name of a JSON object, or an empty span.
func memberOf(body []byte, object span, name string) (found span) {
	if object.kind != jsontext.KindBeginObject {
		return span{}
	}
	body = body[:object.end]
	unstructuredjson.Members(body, object.start, func(member []byte, _, start int) (end int) {
		if string(member) != name {
			return unstructuredjson.EndOfValue(body, start)
		}
		_, _ = found.locate(body, start) // without a value there is no text
		return 0
	})
	return found
}

// text returns the value of a JSON string, and an empty one for anything else.
func (s span) text(body []byte) string {
	if s.kind != jsontext.KindString {
		return ""
	}
	quoted := body[s.start:s.end]
	if inner := quoted[1 : len(quoted)-1]; len(inner) <= maxLong && !bytes.ContainsRune(inner, '\\') {
		return string(inner)
	}
	value, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil || len(value) > maxLong {
		return ""
	}
	return string(value)
}

// members reads the JSON object that begins in body at a position, and calls visit for each member of the given names.
// It writes the members that visit adds as one JSON object. It returns the end of the object in body.
func (e *envelope) members(body []byte, at int, path string, names []string, visit func(name string, start int) (end int, err error)) (end int, err error) {
	e.text = append(e.text, '{')
	var seen uint
	end, ok := unstructuredjson.Members(body, at, func(name []byte, nameAt, start int) (end int) {
		i := slices.Index(names, string(name))
		if i < 0 || start == len(body) {
			return unstructuredjson.EndOfValue(body, start)
		}
		if seen&(1<<i) != 0 {
			err = &unstructuredjson.Error{Pointer: path + "/" + names[i], Offset: int64(nameAt), Reason: "duplicate member"}
			return 0
		}
		seen |= 1 << i
		end, err = visit(names[i], start)
		return end
	})
	if err == nil && !ok {
		err = errNoReview
	}
	if last := len(e.text) - 1; e.text[last] == ',' {
		e.text = e.text[:last]
	}
	e.text = append(e.text, '}')
	return end, err
}

// locate sets the span to the value that begins in body at a position, and returns its end.
func (s *span) locate(body []byte, start int) (end int, err error) {
	if end = unstructuredjson.EndOfValue(body, start); end == start || end > len(body) {
		return 0, errNoReview
	}
	*s = span{start: start, end: end, kind: jsontext.Value(body[start:end]).Kind()}
	return end, nil
}

// writeName writes the name of a member. The value must follow.
func (e *envelope) writeName(name string) {
	e.text = append(e.text, '"')
	e.text = append(e.text, name...)
	e.text = append(e.text, '"', ':')
}

// copyMember copies the member whose value begins in body at a position, and returns the value and its end.
func (e *envelope) copyMember(name string, body []byte, start int, value *span) (end int, err error) {
	if end, err = value.locate(body, start); err != nil {
		return 0, err
	}
	if len(e.text)+end-start > maxEnvelope {
		return 0, fmt.Errorf("the review has more than %d bytes in addition to its objects", maxEnvelope)
	}
	e.writeName(name)
	e.text = append(e.text, body[start:end]...)
	e.text = append(e.text, ',')
	return end, nil
}

func isBlank(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c != ' ' && c != '\n' && c != '\t' && c != '\r' })
}
