// Package truncate shortens external text for messages, API objects and log lines.
package truncate

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// EventMessage is the limit for an event's message in bytes. The API server
// accepts less than 1 KiB.
const EventMessage = 1000

const mark = "..."

// String returns s if it has at most limit bytes, and otherwise as many whole
// characters as fit together with "...". The limit must be at least 3.
func String(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// Line returns s as one line of valid UTF-8, of at most limit bytes and as many more as replacements of invalid ones add.
func Line(s string, limit int) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(String(s, limit), "\uFFFD"))
}
