package pty

import (
	"regexp"
	"strings"
)

// NameColors makes the colors of a text readable in a golden file, as {red} and {/}.
func NameColors(text string) string {
	return strings.NewReplacer("\x1b[31m", "{red}", "\x1b[32m", "{green}", "\x1b[33m", "{yellow}", "\x1b[35m", "{magenta}",
		"\x1b[36m", "{cyan}", "\x1b[1m", "{bold}", "\x1b[2m", "{faint}", "\x1b[0m", "{/}").Replace(text)
}

// WithoutColors returns what a text says to a reader who sees no colors.
func WithoutColors(text string) string {
	return regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(text, "")
}
