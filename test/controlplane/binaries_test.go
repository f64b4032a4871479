package controlplane

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBinary(t *testing.T) {
	all := []string{Etcd, APIServer, kubectl, ControllerManager}
	asEnvtest := all[:3]
	tests := map[string]struct {
		assets  []string // nil: the variable is not set
		built   []string
		name    string
		want    string // folder
		wantErr string
	}{
		"built here":                  {built: all, name: Etcd, want: "repo/bin/k8s"},
		"not built":                   {name: Etcd, wantErr: "bin/k8s has no etcd, kube-apiserver, kubectl: run `make kubernetes`"},
		"half built":                  {built: all[:2], name: Etcd, wantErr: "bin/k8s has no kubectl: run `make kubernetes`"},
		"built without the manager":   {built: asEnvtest, name: ControllerManager, wantErr: "no kube-controller-manager in "},
		"assets first":                {assets: all, built: all, name: ControllerManager, want: "assets"},
		"assets without the manager":  {assets: asEnvtest, built: all, name: ControllerManager, want: "repo/bin/k8s"},
		"assets, no manager anywhere": {assets: asEnvtest, name: ControllerManager, wantErr: "run `make kubernetes`"},
		"assets are incomplete": {
			assets:  all[:1],
			built:   all,
			name:    Etcd,
			wantErr: "has no kube-apiserver, kubectl: add what is missing or unset KUBEBUILDER_ASSETS",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := newRepository(t, tt.built)
			t.Setenv(assetsVariable, "")
			if tt.assets != nil {
				assets := filepath.Join(root, "assets")
				writePrograms(t, assets, tt.assets)
				t.Setenv(assetsVariable, assets)
			}
			got, err := Binary(tt.name)
			if tt.wantErr != "" {
				wantError(t, err, tt.wantErr)
				return
			}
			if want := filepath.Join(root, tt.want, tt.name); err != nil || got != want {
				t.Errorf("got %s, %v, want %s", got, err, want)
			}
		})
	}
}

func TestBinDirOutsideTheRepository(t *testing.T) {
	t.Setenv(assetsVariable, "")
	t.Chdir(t.TempDir())
	_, err := BinDir()
	wantError(t, err, "no go.mod of github.com/ostiary/ostiary in ")
}

// newRepository makes a repository with these programs built, and a module of
// its own below it that is the working directory.
func newRepository(t *testing.T, built []string) (root string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(root, "repo", "hack", "inner")
	writePrograms(t, filepath.Join(root, "repo", "bin", "k8s"), built)
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, module := range map[string]string{filepath.Join(root, "repo"): modulePath, inner: modulePath + "/hack/inner"} {
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("// A comment.\nmodule "+module+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(inner)
	return root
}

func writePrograms(t *testing.T, dir string, names []string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
