// Package unstructuredjson decodes JSON into the tree that Kubernetes uses for unstructured objects: map[string]any,
// []any, string, bool, nil, int64 for integers that fit and float64 for every other number.
//
// The trees equal those of k8s.io/apimachinery/pkg/util/json, with which the API server decodes, and so do the limits:
// of members of one name the last counts, what is not UTF-8 becomes U+FFFD, and objects and arrays may be nested 10,000
// deep. An API server passes on what it stores as it came, so whoever is stricter can be evaded.
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

// maxPooled is the number of members and elements up to which a decoder's scratch space is kept for reuse.
const maxPooled = 4096

// What nodes take, in bytes, with the space in which they are gathered. TestEstimate compares it with what the heap holds.
const (
	objectCost      = 64
	firstMemberCost = 320 // a map has room for eight members from the first on
	memberCost      = 32
	moreMembersCost = 112 // for each beyond eight
	groupMembers    = 8
	arrayCost       = 24
	elementCost     = 56
	stringCost      = 16
	numberCost      = 8
)

// Decode returns the tree of the one JSON object that raw holds. An error is an *Error.
//
// Strings of the tree are parts of one copy of raw: keeping any of them keeps the whole copy. Trees live as long as
// the request they belong to; clone a string that is to live longer. Raw itself is neither changed nor kept.
func Decode(raw []byte) (map[string]any, error) { return DecodeWithout(raw, "", "") }

// DecodeWithout is Decode, but leaves out the named member of a member of the object: with "metadata" and
// "managedFields", which often make up half of an object, as if they were not there. What is left out is checked to be
// JSON, and no more than that.
func DecodeWithout(raw []byte, parent, name string) (map[string]any, error) {
	return (*Account)(nil).DecodeWithout(raw, parent, name)
}

// DecodeWithout is the function of that name, but takes what the tree holds from the account. An error is then also
// ErrTooLarge or a *BusyError: decoding ends where the memory does.
func (a *Account) DecodeWithout(raw []byte, parent, name string) (map[string]any, error) {
	if err := a.Take(int64(len(raw))); err != nil {
		return nil, err
	}
	d := decoders.Get().(*decoder)
	defer d.release()
	d.reset(raw)
	d.account = a
	d.parent, d.without, d.within = parent, name, false
	tree, err := d.document()
	if err != nil {
		return nil, Locate(err)
	}
	return tree, nil
}

// decoders holds idle decoders: their state machine and scratch space are most of what a small decode would allocate.
var decoders = sync.Pool{New: func() any { return &decoder{tokens: new(jsontext.Decoder)} }} //nolint:gochecknoglobals // a pool serves all callers or it saves nothing; it holds no state between them

// tokenOptions are as lenient as the API server's decoder.
func tokenOptions() (duplicates, invalid jsontext.Options) {
	return jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)
}

type member struct {
	name  string
	value any
}

// decoder turns tokens into a tree. Members and elements are gathered on two stacks that all levels share, so
// that every map and slice is made once, in its final size.
type decoder struct {
	input    bytes.Buffer
	tokens   *jsontext.Decoder
	text     string // the input as a string, of which the tree's strings are parts
	valid    bool   // the input is UTF-8
	account  *Account
	members  []member
	elements []any

	parent, without string // the member to leave out, and the member of the document that holds it
	within          bool   // the value being read is that of parent
}

func (d *decoder) reset(raw []byte) {
	d.input = *bytes.NewBuffer(raw)
	duplicates, invalid := tokenOptions()
	d.tokens.Reset(&d.input, duplicates, invalid)
	d.text, d.valid = string(raw), utf8.Valid(raw)
}

// release forgets the input and the tree before the decoder waits for its next use.
func (d *decoder) release() {
	if cap(d.members) > maxPooled || cap(d.elements) > maxPooled {
		return
	}
	clear(d.members) // a complete document has left both empty
	clear(d.elements)
	d.members, d.elements, d.text, d.account = d.members[:0], d.elements[:0], "", nil
	d.input = bytes.Buffer{}
	duplicates, invalid := tokenOptions()
	d.tokens.Reset(&d.input, duplicates, invalid)
	decoders.Put(d)
}

func (d *decoder) document() (map[string]any, error) {
	if kind := d.tokens.PeekKind(); kind != jsontext.KindBeginObject && kind != jsontext.KindInvalid {
		return nil, &Error{Reason: "must be a JSON object; found: " + KindName(kind)}
	}
	value, err := d.value()
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

func (d *decoder) value() (any, error) {
	switch d.tokens.PeekKind() {
	case jsontext.KindString:
		return boxed(d.string())
	case jsontext.KindBeginObject:
		return boxed(d.object())
	case jsontext.KindBeginArray:
		return boxed(d.array())
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

func (d *decoder) object() (map[string]any, error) {
	if _, err := d.tokens.ReadToken(); err != nil {
		return nil, err
	}
	if err := d.account.takeObject(); err != nil {
		return nil, err
	}
	depth := d.tokens.StackDepth()
	base := len(d.members)
	for d.tokens.PeekKind() == jsontext.KindString {
		name, err := d.string()
		if err != nil {
			return nil, err
		}
		if depth == 1 {
			d.within = name == d.parent
		}
		value, err := d.member(depth, name)
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
	if depth == 2 && d.within && d.without != "" {
		delete(object, d.without)
	}
	return object, nil
}

// member reads the value of a member, or skips it.
func (d *decoder) member(depth int, name string) (any, error) {
	if depth == 2 && d.within && d.without != "" && name == d.without {
		return nil, d.tokens.SkipValue()
	}
	return d.value()
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

func (d *decoder) array() ([]any, error) {
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
		value, err := d.value()
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

// unquote replaces broken text as the API server's decoder does it.
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

// literal reads a string or number and returns it as it stands in the input, as bytes and as part of d.text.
func (d *decoder) literal() (raw []byte, text string, err error) {
	raw, err = d.tokens.ReadValue()
	if err != nil {
		return nil, "", err
	}
	end := d.tokens.InputOffset()
	return raw, d.text[end-int64(len(raw)) : end], nil
}
