package webhooks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/unstructuredjson"
)

// envelope is what a body holds beside the objects, as a JSON text of its own, and where the objects are. They may be
// nested as deep as the decoder of the envelope allows the whole body to be.
type envelope struct {
	text                       []byte
	object, oldObject, options span
}

var (
	errNoReview = errors.New("the body must be an AdmissionReview in JSON")

	reviewNames  = []string{"apiVersion", "kind", "request"}                                                                                                                                                            //nolint:gochecknoglobals // a constant in all but name
	requestNames = []string{"uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name", "namespace", "operation", "userInfo", "dryRun", "object", "oldObject", "options"} //nolint:gochecknoglobals // likewise
)

// openEnvelope finds the objects and copies the other members that are known. What is not known is left alone.
func openEnvelope(body []byte) (*envelope, error) {
	e := &envelope{text: make([]byte, 0, 2<<10)}
	end, err := e.members(body, 0, "", reviewNames, func(name string, start int) (int, error) {
		if name != "request" || body[start] != '{' {
			return e.add(name, body, start)
		}
		e.name(name)
		end, err := e.members(body, start, "/request", requestNames, func(name string, start int) (int, error) {
			switch name {
			case "object":
				return e.object.find(body, start)
			case "oldObject":
				return e.oldObject.find(body, start)
			case "options":
				return e.options.find(body, start)
			}
			return e.add(name, body, start)
		})
		e.text = append(e.text, ',')
		return end, err
	})
	switch {
	case errors.Is(err, errNoReview), err == nil && !blank(body[end:]):
		return nil, explain(errNoReview, body)
	case err != nil:
		return nil, err
	}
	return e, nil
}

// members reads the object that begins in body at a position, and writes what take adds as members of one.
func (e *envelope) members(body []byte, at int, path string, names []string, take func(name string, start int) (end int, err error)) (end int, err error) {
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
		end, err = take(names[i], start)
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

// find sets the span to the value that begins in body at a position, and returns its end.
func (s *span) find(body []byte, start int) (end int, err error) {
	if end = unstructuredjson.EndOfValue(body, start); end == start || end > len(body) {
		return 0, errNoReview
	}
	*s = span{start: start, end: end, kind: jsontext.Value(body[start:end]).Kind()}
	return end, nil
}

// name writes the name of a member whose value is written next.
func (e *envelope) name(name string) {
	e.text = append(e.text, '"')
	e.text = append(e.text, name...)
	e.text = append(e.text, '"', ':')
}

// add copies the member whose value begins in body at a position, and returns its end.
func (e *envelope) add(name string, body []byte, start int) (end int, err error) {
	var value span
	if end, err = value.find(body, start); err != nil {
		return 0, err
	}
	if len(e.text)+end-start > maxEnvelope {
		return 0, fmt.Errorf("the review has more than %d bytes beside its objects", maxEnvelope)
	}
	e.name(name)
	e.text = append(e.text, body[start:end]...)
	e.text = append(e.text, ',')
	return end, nil
}

func blank(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c != ' ' && c != '\n' && c != '\t' && c != '\r' })
}
