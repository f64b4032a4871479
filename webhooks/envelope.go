package webhooks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// envelope is a review without its objects, as a JSON text, and the positions of the objects in the body. The objects
// may be nested as deep as the decoder of the envelope allows for the whole body.
type envelope struct {
	text                       []byte
	object, oldObject, options span
}

var (
	errNoReview = errors.New("the body must be an AdmissionReview in JSON")

	reviewNames  = []string{"apiVersion", "kind", "request"}                                                                                                                                                            //nolint:gochecknoglobals // a constant in all but name
	requestNames = []string{"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation", "userInfo", "dryRun", "object", "oldObject", "options"} //nolint:gochecknoglobals // likewise
)

// parseEnvelope locates the objects and copies the other known members. It ignores unknown members.
func parseEnvelope(body []byte) (*envelope, error) {
	e := &envelope{text: make([]byte, 0, 2<<10)}
	end, err := e.members(body, 0, "", reviewNames, func(name string, start int) (int, error) {
		if name != "request" || body[start] != '{' {
			return e.copyMember(name, body, start)
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
			}
			return e.copyMember(name, body, start)
		})
		e.text = append(e.text, ',')
		return end, err
	})
	switch {
	case errors.Is(err, errNoReview), err == nil && !isBlank(body[end:]):
		return nil, explain(errNoReview, body)
	case err != nil:
		return nil, err
	}
	return e, nil
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

// copyMember copies the member whose value begins in body at a position, and returns the end of the value.
func (e *envelope) copyMember(name string, body []byte, start int) (end int, err error) {
	var value span
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
