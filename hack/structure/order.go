package main

import "slices"

// orderFiles returns the files from the lowest to the highest: a file comes after those that
// it refers to, as far as circles allow. It takes away files that refer to no remaining file,
// then those to which no remaining file refers, and in a circle the file with the largest
// surplus of references from others.
func orderFiles(names []string, references []reference) []string {
	remaining := slices.Clone(names)
	var lowest, highest []string
	for len(remaining) > 0 {
		out, in := degrees(remaining, references)
		at := slices.IndexFunc(remaining, func(n string) bool { return out[n] == 0 })
		if at < 0 {
			if top := slices.IndexFunc(remaining, func(n string) bool { return in[n] == 0 }); top >= 0 {
				highest = append(highest, remaining[top])
				remaining = slices.Delete(remaining, top, top+1)
				continue
			}
			at = largestSurplus(remaining, out, in)
		}
		lowest = append(lowest, remaining[at])
		remaining = slices.Delete(remaining, at, at+1)
	}
	slices.Reverse(highest)
	return append(lowest, highest...)
}

// degrees counts the references of each remaining file to others, and of others to it.
func degrees(remaining []string, references []reference) (out, in map[string]int) {
	out, in = map[string]int{}, map[string]int{}
	for _, r := range references {
		if slices.Contains(remaining, r.from) && slices.Contains(remaining, r.to) {
			out[r.from]++
			in[r.to]++
		}
	}
	return out, in
}

func largestSurplus(names []string, out, in map[string]int) (best int) {
	for i, n := range names {
		if in[n]-out[n] > in[names[best]]-out[names[best]] {
			best = i
		}
	}
	return best
}
