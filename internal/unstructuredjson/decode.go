// Package unstructuredjson decodes JSON into the tree that Kubernetes uses for unstructured objects: map[string]any,
// []any, string, bool, nil, int64 for integers that fit and float64 for other numbers.
//
// The trees and limits equal those of k8s.io/apimachinery/pkg/util/json, with which the API server decodes: the last of
// duplicate members counts, invalid UTF-8 becomes U+FFFD, and objects and arrays may be nested 10,000 deep. A stricter
// decoder could be evaded, because the API server forwards stored objects unchanged.
package unstructuredjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPooled is the largest scratch space, in members or elements, that a decoder keeps for reuse.
const maxPooled = 4096

// The estimated size of nodes in bytes, including scratch space. TestEstimate compares the estimate with the heap.
const (
	objectCost      = 64
	firstMemberCost = 320 // a map with one member has room for eight
	memberCost      = 32
	moreMembersCost = 112 // for each beyond eight
	groupMembers    = 8
	arrayCost       = 24
	elementCost     = 56
	stringCost      = 16
	numberCost      = 8
)

// Decode returns the tree of the JSON object in raw. An error is an *Error.
//
// The strings of the tree share one copy of raw, which any of them keeps alive. Clone a string that outlives the
// request. Decode neither changes nor keeps raw.
func Decode(raw []byte) (map[string]any, error) { return DecodeParts(raw, Everything()) }

// DecodeParts is Decode, but the tree has only the selected parts. It checks only the syntax of the others.
func DecodeParts(raw []byte, parts Selection) (map[string]any, error) {
	return (*Account)(nil).DecodeParts(raw, parts)
}

// DecodeParts is the function DecodeParts, but takes the size of the tree from the account. It fails with ErrTooLarge or
// a *BusyError as soon as the account is exhausted.
func (a *Account) DecodeParts(raw []byte, parts Selection) (map[string]any, error) {
	if err := a.Take(int64(len(raw))); err != nil {
		return nil, err
	}
	d := decoders.Get().(*decoder)
	defer d.release()
	d.reset(raw)
	d.account = a
	tree, err := d.document(parts)
	if err != nil {
		return nil, Locate(err)
	}
	return tree, nil
}

// decoders holds idle decoders. Allocating one costs more than a small decode.
var decoders = sync.Pool{New: func() any { return &decoder{tokens: new(jsontext.Decoder)} }} //nolint:gochecknoglobals // a pool serves all callers or it saves nothing; it holds no state between them

// tokenOptions are as lenient as the API server's decoder.
func tokenOptions() (duplicates, invalid jsontext.Options) {
	return jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)
}

type member struct {
	name  string
	value any
}

// decoder turns tokens into a tree. It collects members and elements on two stacks that all levels share, so that each
// map and slice is allocated once in its final size.
type decoder struct {
	input    bytes.Buffer
	tokens   *jsontext.Decoder
	text     string // the input; the tree's strings are substrings
	valid    bool   // the input is UTF-8
	account  *Account
	members  []member
	elements []any
}

func (d *decoder) reset(raw []byte) {
	d.input = *bytes.NewBuffer(raw)
	duplicates, invalid := tokenOptions()
	d.tokens.Reset(&d.input, duplicates, invalid)
	d.text, d.valid = string(raw), utf8.Valid(raw)
}

// release clears the decoder and returns it to the pool.
func (d *decoder) release() {
	if cap(d.members) > maxPooled || cap(d.elements) > maxPooled {
		return
	}
	clear(d.members) // only an error leaves elements
	clear(d.elements)
	d.members, d.elements, d.text, d.account = d.members[:0], d.elements[:0], "", nil
	d.input = bytes.Buffer{}
	duplicates, invalid := tokenOptions()
	d.tokens.Reset(&d.input, duplicates, invalid)
	decoders.Put(d)
}

func (d *decoder) document(parts Selection) (map[string]any, error) {
	if kind := d.tokens.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return nil, &Error{Reason: "must be a JSON object; found: " + KindName(kind)}
	}
	value, err := d.value(parts)
	if errors.Is(err, io.EOF) {
		return nil, &Error{Reason: "must be a JSON object; found: nothing"}
	}
	if err != nil {
		return nil, err
	}
	end := d.tokens.InputOffset()
	if _, err := d.tokens.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &Error{Offset: end, Reason: "unexpected data after the object"}
	}
	return value.(map[string]any), nil
}

func (d *decoder) value(parts Selection) (any, error) {
	switch d.tokens.PeekKind() {
	case jsontext.KindString:
		return boxed(d.string())
	case jsontext.KindBeginObject:
		if parts.elements != nil {
			parts = Everything()
		}
		return boxed(d.object(parts))
	case jsontext.KindBeginArray:
		return boxed(d.array(parts))
	case jsontext.KindNumber:
		return d.number()
	}
	token, err := d.tokens.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case jsontext.KindTrue:
		return true, nil
	case jsontext.KindFalse:
		return false, nil
	case jsontext.KindNull:
		return nil, nil
	}
	return nil, &Error{Offset: d.tokens.InputOffset(), Reason: "unexpected " + KindName(token.Kind())}
}

func boxed[T any](v T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (d *decoder) object(parts Selection) (map[string]any, error) {
	if _, err := d.tokens.ReadToken(); err != nil {
		return nil, err
	}
	if err := d.account.takeObject(); err != nil {
		return nil, err
	}
	base := len(d.members)
	for d.tokens.PeekKind() == jsontext.KindString {
		name, err := d.string()
		if err != nil {
			return nil, err
		}
		selected := parts.Member(name)
		if selected.IsZero() {
			if err := d.tokens.SkipValue(); err != nil {
				return nil, err
			}
			continue
		}
		value, err := d.value(selected)
		if err != nil {
			return nil, err
		}
		if err := d.account.Take(costOfMember(len(d.members) - base)); err != nil {
			return nil, err
		}
		d.members = append(d.members, member{name, value})
	}
	if _, err := d.tokens.ReadToken(); err != nil {
		return nil, err
	}
	members := d.members[base:]
	d.members = d.members[:base]
	object := make(map[string]any, len(members))
	for i := range members {
		object[members[i].name] = members[i].value
	}
	clear(members)
	return object, nil
}

func (a *Account) takeObject() error {
	if a != nil {
		a.objects++
	}
	return a.Take(objectCost)
}

func costOfMember(before int) int64 {
	switch {
	case before == 0:
		return firstMemberCost
	case before < groupMembers:
		return memberCost
	}
	return moreMembersCost
}

func (d *decoder) array(parts Selection) ([]any, error) {
	selected := Everything()
	if parts.elements != nil {
		selected = *parts.elements
	}
	if _, err := d.tokens.ReadToken(); err != nil {
		return nil, err
	}
	if err := d.account.Take(arrayCost); err != nil {
		return nil, err
	}
	base := len(d.elements)
	for {
		kind := d.tokens.PeekKind()
		if kind == jsontext.KindEndArray || kind == jsontext.KindInvalid {
			break
		}
		value, err := d.value(selected)
		if err != nil {
			return nil, err
		}
		if err := d.account.Take(elementCost); err != nil {
			return nil, err
		}
		d.elements = append(d.elements, value)
	}
	if _, err := d.tokens.ReadToken(); err != nil {
		return nil, err
	}
	array := append(make([]any, 0, len(d.elements)-base), d.elements[base:]...)
	clear(d.elements[base:])
	d.elements = d.elements[:base]
	return array, nil
}

func (d *decoder) string() (string, error) {
	raw, text, err := d.literal()
	if err != nil {
		return "", err
	}
	if bytes.IndexByte(raw, '\\') < 0 && (d.valid || utf8.Valid(raw)) {
		return text[1 : len(text)-1], d.account.Take(stringCost)
	}
	if text, err = unquote(raw); err != nil {
		return "", err
	}
	return text, d.account.Take(int64(stringCost + 2*len(text)))
}

// unquote replaces invalid text like the API server's decoder.
func unquote(raw []byte) (string, error) {
	unquoted, err := jsontext.AppendUnquote(nil, raw)
	if err == nil {
		return string(unquoted), nil
	}
	var text string
	err = json.Unmarshal(raw, &text)
	return text, err
}

func (d *decoder) number() (any, error) {
	_, text, err := d.literal()
	if err != nil {
		return nil, err
	}
	if err := d.account.Take(numberCost); err != nil {
		return nil, err
	}
	if !strings.Contains(text, ".") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, &Error{
			Pointer: string(d.tokens.StackPointer()),
			Offset:  d.tokens.InputOffset() - int64(len(text)),
			Reason:  "number does not fit into 64 bits",
		}
	}
	return f, nil
}

// literal reads a string or number and returns its source, as bytes and as a substring of d.text.
func (d *decoder) literal() (raw []byte, text string, err error) {
	raw, err = d.tokens.ReadValue()
	if err != nil {
		return nil, "", err
	}
	end := d.tokens.InputOffset()
	return raw, d.text[end-int64(len(raw)) : end], nil
}
