package unstructuredjson

import "bytes"

// Members calls visit for each member of the object at a position in raw, with its name and the positions of the name
// and the value. Visit returns the end of the value, as EndOfValue does, or 0 to stop. Members returns the end of the
// object; ok is false if there is no object or visit stopped.
func Members(raw []byte, at int, visit func(name []byte, nameAt, start int) (end int)) (end int, ok bool) {
	at = skipSpace(raw, at)
	if !isAt(raw, at, '{') {
		return at, false
	}
	at = skipSpace(raw, at+1)
	if isAt(raw, at, '}') {
		return at + 1, true
	}
	for isAt(raw, at, '"') {
		nameEnd := endOfString(raw, at)
		colon := skipSpace(raw, nameEnd)
		if !isAt(raw, colon, ':') {
			return colon, false
		}
		start := skipSpace(raw, colon+1)
		end := visit(raw[at+1:nameEnd-1], at, start)
		if end <= start || end > len(raw) {
			return start, false
		}
		at = skipSpace(raw, end)
		if isAt(raw, at, '}') {
			return at + 1, true
		}
		if !isAt(raw, at, ',') {
			return at, false
		}
		at = skipSpace(raw, at+1)
	}
	return at, false
}

func isAt(raw []byte, at int, what byte) bool { return at < len(raw) && raw[at] == what }

func skipSpace(raw []byte, at int) int {
	for at < len(raw) && (raw[at] == ' ' || raw[at] == '\n' || raw[at] == '\t' || raw[at] == '\r') {
		at++
	}
	return at
}

// endOfString returns the end of the string at a position. It is beyond raw if the string does not end.
func endOfString(raw []byte, at int) int {
	for from := at + 1; ; {
		quote := bytes.IndexByte(raw[min(from, len(raw)):], '"')
		if quote < 0 {
			return len(raw) + 1
		}
		quote += from
		escapes := 0
		for raw[quote-1-escapes] == '\\' {
			escapes++
		}
		if from = quote + 1; escapes%2 == 0 {
			return from
		}
	}
}

// EndOfValue returns the end of the value at a position: the same position if there is none, beyond raw if the value
// does not end. It considers only quotes and brackets, at any depth; the decoder checks the syntax.
func EndOfValue(raw []byte, at int) int {
	depth := 0
	for at < len(raw) {
		switch raw[at] {
		case '"':
			at = endOfString(raw, at)
		case '{', '[':
			depth++
			at++
			continue
		case '}', ']':
			if depth == 0 {
				return at
			}
			depth--
			at++
		case ',', ' ', '\n', '\t', '\r', ':':
			if depth == 0 {
				return at
			}
			at++
			continue
		default:
			if depth == 0 {
				for at < len(raw) && bytes.IndexByte([]byte(",}] \n\t\r"), raw[at]) < 0 {
					at++
				}
				return at
			}
			at++
			continue
		}
		if depth == 0 {
			return at
		}
	}
	return len(raw) + 1
}
