package gatekeeper

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// regoToken matches one token of Rego, a comment or spaces.
var regoToken = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`|#[^\n]*|[A-Za-z0-9_]+|:=|==|!=|<=|>=|\\s+|.")

// regoDigest identifies the decisions of a module with its libraries, regardless of comments, spaces, the
// order of libraries, and the differences of spelling between the versions of Rego.
func regoDigest(rego string, libraries []string) string {
	texts := make([]string, len(libraries))
	for i, l := range libraries {
		texts[i] = canonicalRego(l)
	}
	slices.Sort(texts)
	sum := sha256.Sum256([]byte(strings.Join(append(texts, canonicalRego(rego)), "\n")))
	return hex.EncodeToString(sum[:])
}

// canonicalRego returns the tokens of a module in the spelling before version 1 of Rego.
func canonicalRego(text string) string {
	var tokens []string
	for _, t := range regoToken.FindAllString(text, -1) {
		if strings.TrimSpace(t) != "" && t[0] != '#' {
			tokens = append(tokens, t)
		}
	}
	tokens = withoutKeywordImports(tokens)
	tokens = withoutContains(tokens)
	out := " " + strings.Join(tokens, " ") + " "
	for _, r := range []struct{ spelling, canonical string }{
		{" re_match ", " regex . match "},
		{" := ", " = "},
		{" if { ", " { "},
		{" = true { ", " { "},
		{" { true } ", " "},
	} {
		out = strings.ReplaceAll(out, r.spelling, r.canonical)
	}
	return out
}

// withoutKeywordImports removes "import future.keywords.x" and "import rego.v1".
func withoutKeywordImports(tokens []string) []string {
	var out []string
	for i := 0; i < len(tokens); i++ {
		rest := tokens[i:]
		switch {
		case hasTokens(rest, "import", "rego", ".", "v1"):
			i += 3
		case hasTokens(rest, "import", "future", ".", "keywords", "."):
			i += 5
		case hasTokens(rest, "import", "future", ".", "keywords"):
			i += 3
		default:
			out = append(out, tokens[i])
		}
	}
	return out
}

func hasTokens(tokens []string, want ...string) bool {
	return len(tokens) >= len(want) && slices.Equal(tokens[:len(want)], want)
}

// withoutContains writes the head "name contains term if" as "name[term] if".
func withoutContains(tokens []string) []string {
	var out []string
	for i := 0; i < len(tokens); i++ {
		var term []string
		if tokens[i] == "contains" {
			term = termOf(tokens, i+1)
		}
		if term == nil || !hasTokens(tokens[i+1+len(term):], "if") {
			out = append(out, tokens[i])
			continue
		}
		i += len(term)
		if term[0] == "(" {
			term = term[1 : len(term)-1]
		}
		out = append(append(append(out, "["), term...), "]")
	}
	return out
}

// termOf returns the token at a position, or all up to the bracket that closes it; nil if there is none.
func termOf(tokens []string, at int) []string {
	depth := 0
	for i := at; i < len(tokens); i++ {
		switch tokens[i] {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		}
		if depth <= 0 {
			return tokens[at : i+1]
		}
	}
	return nil
}
