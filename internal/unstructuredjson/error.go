package unstructuredjson

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxPointer bounds the JSON Pointer in a message, in bytes.
const maxPointer = 256

// Error is an error in a JSON text and its position.
type Error struct {
	// Pointer is the JSON Pointer (RFC 6901) of the value; empty for the whole text.
	Pointer string
	// Offset is the position of the error in bytes.
	Offset int64
	// Reason describes the error.
	Reason string
}

// Error returns one line with the reason, the pointer and the offset.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("invalid JSON: %s (offset %d)", e.Reason, e.Offset)
	}
	return fmt.Sprintf("invalid JSON: %s at %q (offset %d)", e.Reason, truncate.String(e.Pointer, maxPointer), e.Offset)
}

// Locate converts the syntax error in err's chain to an *Error. It returns err if there is none. All readers of JSON in
// this program use it, for uniform messages.
func Locate(err error) error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return own
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	return &Error{Pointer: string(syntax.JSONPointer), Offset: syntax.ByteOffset, Reason: reason(syntax.Err)}
}

func reason(err error) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "duplicate member"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "unexpected end"
	case err == nil:
		return "syntax error"
	}
	return strings.TrimPrefix(err.Error(), "jsontext: ")
}

// KindName returns the name of a kind in messages.
func KindName(kind jsontext.Kind) string {
	switch kind {
	case jsontext.KindBeginObject:
		return "object"
	case jsontext.KindBeginArray:
		return "array"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "boolean"
	}
	return kind.String()
}
