// Package truncate shortens texts that are not Ostiary's own to what an object
// of the API, an answer or a log line has room for.
package truncate

import "unicode/utf8"

// EventMessage is the limit, in bytes, for an event's message, of which the API
// server takes less than 1 KiB.
const EventMessage = 1000

const mark = "..."

// String returns s if it is at most limit bytes long, and else as much of its
// beginning as fits into limit bytes together with "...". It ends between two
// characters. A limit has to leave room for the mark: it is at least 3.
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
