package chart

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// apiSchemas validates objects as the API servers of each supported version do with
// kubectl --validate=strict. The schemas are those that kubectl-ostiary contains.
type apiSchemas struct {
	versions map[string]map[string]*jsonschema.Schema // by version, then "apps/v1 Deployment"
	checked  map[string][]string                      // problems by object
}

// definedElsewhere are groups of kinds that are not part of Kubernetes.
const definedElsewhere = "monitoring.coreos.com/"

func loadSchemas(t *testing.T) *apiSchemas {
	t.Helper()
	archives, err := filepath.Glob("../../internal/kubernetes/schemas-*.zip")
	if err != nil || len(archives) < 4 {
		t.Fatalf("found the schemas of %d versions: %v", len(archives), err)
	}
	out := &apiSchemas{versions: map[string]map[string]*jsonschema.Schema{}, checked: map[string][]string{}}
	for _, archive := range archives {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archive), "schemas-"), ".zip")
		out.versions[version] = schemasIn(t, archive)
	}
	return out
}

func schemasIn(t *testing.T, archive string) map[string]*jsonschema.Schema {
	t.Helper()
	files, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	out := map[string]*jsonschema.Schema{}
	for _, f := range files.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		var document map[string]any
		if err := json.Unmarshal(raw, &document); err != nil {
			t.Fatal(err)
		}
		compileKinds(t, archive+"/"+f.Name, document, out)
	}
	return out
}

// compileKinds adds the schemas of the kinds in a document.
func compileKinds(t *testing.T, name string, document map[string]any, out map[string]*jsonschema.Schema) {
	t.Helper()
	all := field(document, "components", "schemas").(map[string]any)
	for _, schema := range all {
		closeSchema(schema)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4) // OpenAPI 3.0 is based on it
	url := "file:///" + filepath.Base(filepath.Dir(name)) + "/" + strings.ReplaceAll(name, "../", "")
	if err := compiler.AddResource(url, document); err != nil {
		t.Fatal(err)
	}
	for component, schema := range all {
		kinds, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // an object of the protocol, such as DeleteOptions
		}
		kind := kinds[0].(map[string]any)
		compiled, err := compiler.Compile(url + "#/components/schemas/" + component)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(fmt.Sprintf("%s/%s %s", kind["group"], kind["version"], kind["kind"]), "/")] = compiled
	}
}

// closeSchema rejects unknown fields, as strict validation does.
func closeSchema(schema any) {
	switch schema := schema.(type) {
	case []any:
		for _, item := range schema {
			closeSchema(item)
		}
	case map[string]any:
		for _, value := range schema {
			closeSchema(value)
		}
		if _, isObject := schema["properties"].(map[string]any); isObject && schema["type"] == "object" && schema["additionalProperties"] == nil {
			schema["additionalProperties"] = false
		}
	}
}

func (s *apiSchemas) problems(t *testing.T, all []object) (problems []string) {
	t.Helper()
	for _, o := range all {
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		found, known := s.checked[string(text)]
		if !known {
			found = s.validate(o)
			s.checked[string(text)] = found
		}
		problems = append(problems, found...)
	}
	return problems
}

func (s *apiSchemas) validate(o object) (problems []string) {
	kind := fmt.Sprint(o["apiVersion"], " ", o["kind"])
	if strings.HasPrefix(kind, definedElsewhere) {
		return nil
	}
	for version, schemas := range s.versions {
		if schemas[kind] == nil {
			problems = append(problems, fmt.Sprintf("Kubernetes %s has no %s", version, kind))
		} else if err := schemas[kind].Validate(o); err != nil {
			problems = append(problems, fmt.Sprintf("Kubernetes %s rejects %s: %v", version, id(o), err))
		}
	}
	return problems
}

// TestSchemas breaks an object in ways that the schemas must find.
func TestSchemas(t *testing.T) {
	schemas := loadSchemas(t)
	for name, tt := range map[string]struct{ object, want string }{
		"a valid object": {
			object: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 443, targetPort: https}]}}",
		},
		"an unknown field": {
			object: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {port: 443}}",
			want:   "additional properties 'port' not allowed",
		},
		"a wrong type": {
			object: "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: https}]}}",
			want:   "got string, want integer",
		},
		"a missing field": {
			object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {}}}",
			want:   "missing property 'selector'",
		},
		"an unknown kind": {
			object: "{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: a}}",
			want:   "has no policy/v1beta1 PodDisruptionBudget",
		},
		"a deep field": {
			object: "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, securityContext: {priviledged: true}}]}}",
			want:   "'priviledged'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := schemas.validate(parse(t, tt.object)[0])
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 4 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("problems %q, want %q of each version", got, tt.want)
			}
		})
	}
}

// argoSchemas are those in the definitions of Argo CD's Applications and ApplicationSets, which
// testdata/argocd-3.6.1.zip has from manifests/crds of its repository.
func argoSchemas(t *testing.T) *apiSchemas {
	t.Helper()
	const archive = "testdata/argocd-3.6.1.zip"
	files, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	kinds := map[string]*jsonschema.Schema{}
	for _, f := range files.File {
		text, err := fs.ReadFile(files, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		var definition object
		if err := yaml.Unmarshal(text, &definition); err != nil {
			t.Fatal(err)
		}
		compileKinds(t, archive+"/"+f.Name, schemasOfDefinition(definition), kinds)
	}
	return &apiSchemas{versions: map[string]map[string]*jsonschema.Schema{"with Argo CD": kinds}, checked: map[string][]string{}}
}

// schemasOfDefinition returns the schemas of a CustomResourceDefinition as an API server publishes them.
func schemasOfDefinition(definition object) map[string]any {
	all := map[string]any{}
	group, kind := field(definition, "spec", "group"), field(definition, "spec", "names", "kind")
	for _, v := range field(definition, "spec", "versions").([]any) {
		version := v.(object)
		name := version["name"]
		described := field(version, "schema", "openAPIV3Schema").(map[string]any)
		described["properties"].(map[string]any)["metadata"] = map[string]any{"type": "object", "additionalProperties": true}
		described["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": group, "version": name, "kind": kind}}
		all[fmt.Sprint(kind, name)] = described
	}
	return map[string]any{"components": map[string]any{"schemas": all}}
}
