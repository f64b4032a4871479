package unstructuredjson

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ostiary/ostiary/internal/truncate"
)

// maxPointer bounds what a message repeats of the names it was given.
const maxPointer = 256

// Error says what is wrong with a JSON text, and where.
type Error struct {
	// Pointer is the JSON Pointer (RFC 6901) of the value; empty for the whole text.
	Pointer string
	// Offset is the number of bytes before the place.
	Offset int64
	// Reason is what is wrong there.
	Reason string
}

// Error returns one line that names the reason, the place and the offset.
func (e *Error) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("invalid JSON: %s (offset %d)", e.Reason, e.Offset)
	}
	return fmt.Sprintf("invalid JSON: %s at %q (offset %d)", e.Reason, truncate.String(e.Pointer, maxPointer), e.Offset)
}

// Locate returns the *Error that tells what the syntax error in err's chain tells, or err if it holds none. It gives
// every reader of JSON in this program the same messages.
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

// KindName returns what a value of this kind is called in messages.
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
