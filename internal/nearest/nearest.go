// Package nearest suggests the name that an author of a policy probably meant.
package nearest

import (
	"iter"
	"strings"
)

const (
	maxLength   = 64 // characters of a name; longer names get no suggestion
	maxDistance = 3  // edits between a name and its suggestion
)

// Name returns the candidate with the fewest edits from name, and the first in
// alphabetical order of several. An edit adds, removes or replaces a character, or
// swaps two adjacent ones; the case of letters does not count. Name returns "" if no
// candidate is within a third of the length of name, and within 3 edits.
func Name(name string, candidates iter.Seq[string]) string {
	from := []rune(strings.ToLower(name))
	if len(from) == 0 || len(from) > maxLength {
		return ""
	}
	limit := min(maxDistance, max(1, len(from)/3))
	best, least := "", limit+1
	for candidate := range candidates {
		if candidate == name || candidate == "" {
			continue
		}
		d := distance(from, []rune(strings.ToLower(candidate)), limit)
		if d < least || (d == least && d <= limit && candidate < best) {
			best, least = candidate, d
		}
	}
	return best
}

// distance returns the number of edits, or more than limit if there are more.
func distance(a, b []rune, limit int) int {
	if len(b) > maxLength || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+differs(a[i], b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

func differs(a, b rune) int {
	if a == b {
		return 0
	}
	return 1
}
