package plugins

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ostiary/ostiary/internal/pluginapi"
)

// withCredentials are the fields and methods of pluginapi.Call behind which Ostiary
// reads objects or asks others with its own credentials. Namespaces are not among
// them: every author sees those, as namespaceObject.
var withCredentials = map[string]bool{"List": true, "Listed": true, "Authorizer": true, "Images": true, "Pods": true}

// TestPluginsForAuthors: authors without further permissions may use exactly the
// plugins that neither change objects nor use Ostiary's credentials.
func TestPluginsForAuthors(t *testing.T) {
	users := credentialUsers(t)
	want := []string{""} // a policy without a plugin
	for _, d := range All() {
		plugin, _ := d.New(nil, nil)
		_, mutates := plugin.(pluginapi.Mutator)
		kind := reflect.TypeOf(plugin)
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		if !mutates && !users[path.Base(kind.PkgPath())] {
			want = append(want, string(d.Name))
		}
	}
	text, err := os.ReadFile("../../config/rbac/author_policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "variables.plugin in [")
	list, _, _ = strings.Cut(list, "]")
	var got []string
	for _, name := range regexp.MustCompile(`'(\w*)'`).FindAllStringSubmatch(list, -1) {
		got = append(got, name[1])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plugins that need no permission (-by the code +in config/rbac/author_policy.yaml):\n%s", diff)
	}
}

// credentialUsers are the folders whose code uses what is withCredentials.
func credentialUsers(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the plugins: %d files, %v", len(files), err)
	}
	users := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && withCredentials[s.Sel.Name] && !isPackage(parsed, s.X) {
				users[filepath.Dir(file)] = true
			}
			return true
		})
	}
	return users
}

// isPackage reports whether an expression is the name of an imported package.
func isPackage(file *ast.File, x ast.Expr) bool {
	identifier, ok := x.(*ast.Ident)
	return ok && slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return strings.Trim(path.Base(i.Path.Value), `"`) == identifier.Name
	})
}
