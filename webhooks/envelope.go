package webhooks

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/jsontree"
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
	err := e.members(body, 0, len(body), "", reviewNames, func(name string, value span) error {
		if name != "request" || value.kind != jsontext.KindBeginObject {
			return e.add(name, body[value.start:value.end])
		}
		if err := e.add(name, nil); err != nil {
			return err
		}
		return e.members(body, value.start, value.end, "/request", requestNames, func(name string, value span) error {
			switch name {
			case "object":
				e.object = value
			case "oldObject":
				e.oldObject = value
			case "options":
				e.options = value
			default:
				return e.add(name, body[value.start:value.end])
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// members reads the object that is all of body between two positions, and writes what take adds as members of one.
func (e *envelope) members(body []byte, start, end int, path string, names []string, take func(name string, value span) error) (err error) {
	e.text = append(e.text, '{')
	var seen uint
	ended, ok := jsontree.Members(body, start, func(name []byte, at, start, end int) bool {
		i := slices.Index(names, string(name))
		if i < 0 {
			return true
		}
		if seen&(1<<i) != 0 {
			err = &jsontree.Error{Pointer: path + "/" + names[i], Offset: int64(at), Reason: "duplicate member"}
			return false
		}
		seen |= 1 << i
		err = take(names[i], span{start: start, end: end, kind: jsontext.Value(body[start:end]).Kind()})
		return err == nil
	})
	if err == nil && (!ok || ended > end || !blank(body[ended:end])) {
		return explain(errNoReview, body)
	}
	if last := len(e.text) - 1; e.text[last] == ',' {
		e.text = e.text[:last]
	}
	e.text = append(e.text, '}', ',')
	if path == "" {
		e.text = e.text[:len(e.text)-1]
	}
	return err
}

// add writes a member; one without a value is to be written next.
func (e *envelope) add(name string, value []byte) error {
	if len(e.text)+len(value) > maxEnvelope {
		return fmt.Errorf("the review has more than %d bytes beside its objects", maxEnvelope)
	}
	e.text = append(e.text, '"')
	e.text = append(e.text, name...)
	e.text = append(e.text, '"', ':')
	if value != nil {
		e.text = append(e.text, value...)
		e.text = append(e.text, ',')
	}
	return nil
}

func blank(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c != ' ' && c != '\n' && c != '\t' && c != '\r' })
}
