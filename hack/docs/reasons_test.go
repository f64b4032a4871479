package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every reason of a condition and of an event has a heading that says what to do.
func TestReasonsAreDocumented(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	policies, exceptions := map[string]string{}, reasons(t, root, "internal/exceptions")
	for reason, where := range reasons(t, root, "controllers") {
		if strings.HasPrefix(where, "controllers/exceptions/") {
			exceptions[reason] = where
		} else {
			policies[reason] = where
		}
	}
	for page, of := range map[string]struct {
		found map[string]string
		least int
	}{"docs/operations/troubleshooting.md": {policies, 30}, "docs/policies/exception-status.md": {exceptions, 14}} {
		anchors := headings(read(t, root, page))
		if len(of.found) < of.least {
			t.Errorf("found %d reasons in the code for %s, want more: %v", len(of.found), page, of.found)
		}
		for reason, where := range of.found {
			if !anchors["#"+strings.ToLower(reason)] {
				t.Errorf("%s: %s has no heading %s", where, page, reason)
			}
		}
	}
}

// The constants of reasons and events, and literals in each place that takes a reason.
func TestReasonsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		code string
		want []string
	}{
		"a constant of a reason": {code: `const ReasonA = "A"`, want: []string{"A"}},
		"a constant of an event": {code: `const eventA = "A"`, want: []string{"A"}},
		"another constant":       {code: `const other = "A"`},
		"returned beside the type of an event": {
			code: `func f() (string, string) { return "A", corev1.EventTypeNormal }`,
			want: []string{"A"},
		},
		"an action, which is no reason": {code: `func f() (string, string) { return corev1.EventTypeNormal, "A" }`},
		"an argument after the type of an event": {
			code: `func f() { e.record(about, corev1.EventTypeWarning, "A", "action") }`,
			want: []string{"A"},
		},
		"a constant as that argument": {code: `func f() { e.record(corev1.EventTypeWarning, ReasonA, "action") }`},
		"a field":                     {code: `var c = metav1.Condition{Type: "T", Reason: "A"}`, want: []string{"A"}},
		"an unexported field":         {code: `var c = missing{reason: "A", message: "m"}`, want: []string{"A"}},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "a.go", "package a\n"+tc.code, 0)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			ast.Inspect(file, func(n ast.Node) bool {
				got = append(got, reasonsOf(n)...)
				return true
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("reasons (-want +got):\n%s", diff)
			}
		})
	}
}

// reasons are the texts of constants that are named so, of the constants of
// events, and what functions return beside the type of an event or get after it.
func reasons(t *testing.T, root fs.FS, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(root, folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, root, name), 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range reasonsOf(n) {
				out[text] = name
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func reasonsOf(n ast.Node) (out []string) {
	switch n := n.(type) {
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if (strings.HasPrefix(name.Name, "Reason") || strings.HasPrefix(name.Name, "event")) && i < len(n.Values) {
				out = append(out, literal(n.Values[i]))
			}
		}
	case *ast.ReturnStmt:
		if len(n.Results) == 2 && isEventType(n.Results[1]) {
			out = append(out, literal(n.Results[0]))
		}
	case *ast.CallExpr:
		for i := 1; i < len(n.Args); i++ {
			if isEventType(n.Args[i-1]) {
				out = append(out, literal(n.Args[i]))
			}
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "reason") {
			out = append(out, literal(n.Value))
		}
	}
	return withoutEmpty(out)
}

func isEventType(e ast.Expr) bool {
	kind, ok := e.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(kind.Sel.Name, "EventType")
}

func withoutEmpty(texts []string) (out []string) {
	for _, text := range texts {
		if text != "" {
			out = append(out, text)
		}
	}
	return out
}

// TestQuotedMessages finds the messages that documents quote in italics in the code.
// "..." in a quote stands for a value.
func TestQuotedMessages(t *testing.T) {
	root := os.DirFS(filepath.Join("..", ".."))
	code := sources(t, root, "controllers") + sources(t, root, "internal/pki")
	quote := regexp.MustCompile(`(?m)(?:^|[^*])\*([^*\n]+)\*(?:[^*]|$)`)
	for document, least := range map[string]int{"docs/design/certificates.md": 9, "docs/policies/status.md": 7} {
		found := quote.FindAllStringSubmatch(read(t, root, document), -1)
		if len(found) < least {
			t.Errorf("%s: found %d quotes, want at least %d", document, len(found), least)
		}
		for _, message := range found {
			for part := range strings.SplitSeq(message[1], "...") {
				if !strings.Contains(code, strings.TrimSpace(part)) {
					t.Errorf("%s: no message contains %q", document, part)
				}
			}
		}
	}
}

// sources returns the text of the Go files below a folder, without tests.
func sources(t *testing.T, root fs.FS, folder string) string {
	t.Helper()
	var out strings.Builder
	err := fs.WalkDir(root, folder, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") {
			out.WriteString(read(t, root, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
