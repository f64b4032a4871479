package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSelectCommands(t *testing.T) {
	tests := map[string]struct {
		args    []string
		want    []string
		wantErr string
	}{
		"none means a control plane":    {want: []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}},
		"of a node when named":          {args: []string{"kubelet", "kube-proxy"}, want: []string{"kube-proxy", "kubelet"}},
		"in build order, once each":     {args: []string{"kubectl", "etcd", "kubectl"}, want: []string{"etcd", "kubectl"}},
		"an unknown name says what for": {args: []string{"etcd", "kublet"}, wantErr: `unknown name "kublet": use etcd, kube-apiserver`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := selectCommands(tt.args)
			wantError(t, err, tt.wantErr)
			if !slices.Equal(names(got), tt.want) {
				t.Errorf("got %q, want %q", names(got), tt.want)
			}
		})
	}
}

func TestWithoutAssets(t *testing.T) {
	tests := map[string]struct {
		holds   []string
		want    []string
		wantOut string
		wantErr string
	}{
		"everything": {
			holds:   names(controlPlane()),
			wantOut: "using etcd, kube-apiserver, kube-controller-manager, kubectl of KUBEBUILDER_ASSETS=DIR\n",
		},
		"as envtest has them": {
			holds: []string{"etcd", "kube-apiserver", "kubectl"},
			want:  []string{"kube-controller-manager"},
			wantOut: "using etcd, kube-apiserver, kubectl of KUBEBUILDER_ASSETS=DIR\n" +
				"kube-controller-manager: not in KUBEBUILDER_ASSETS\n",
		},
		"incomplete": {
			holds:   []string{"kube-apiserver"},
			wantErr: "KUBEBUILDER_ASSETS=DIR lacks etcd, kubectl: add what is missing or unset the variable",
		},
		"no such folder": {wantErr: "lacks etcd, kube-apiserver, kubectl"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range tt.holds {
				writeFile(t, filepath.Join(dir, name), 0o755)
			}
			var out bytes.Buffer
			got, err := withoutAssets(controlPlane(), dir, &out)
			wantError(t, err, strings.ReplaceAll(tt.wantErr, "DIR", dir))
			if !slices.Equal(names(got), tt.want) {
				t.Errorf("got %q, want %q", names(got), tt.want)
			}
			if want := strings.ReplaceAll(tt.wantOut, "DIR", dir); out.String() != want {
				t.Errorf("printed %q, want %q", out.String(), want)
			}
		})
	}
}

func TestWithoutAssetsWantsPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, c := range commands() {
		writeFile(t, filepath.Join(dir, c.name), 0o644)
	}
	_, err := withoutAssets(commands(), dir, &bytes.Buffer{})
	wantError(t, err, "lacks etcd, kube-apiserver, kubectl")
}

func TestRunUsesAssets(t *testing.T) {
	assets, out := t.TempDir(), filepath.Join(t.TempDir(), "never-made")
	for _, c := range commands() {
		writeFile(t, filepath.Join(assets, c.name), 0o755)
	}
	getenv := func(name string) string { return map[string]string{assetsVariable: assets}[name] }
	if err := run(t.Context(), []string{"-out", out}, getenv, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("with everything in the assets the output folder was made: %v", err)
	}
}

// checkTools: the file of modules names the commands as tools, so that `go mod tidy`
// keeps what they need.
func checkTools(t *testing.T) {
	t.Helper()
	out, err := goCommand(t.Context(), "list", "-mod=readonly", "-find", "-f", "{{.ImportPath}}", "tool")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range commands() {
		want = append(want, c.path)
	}
	got := strings.Fields(out)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("tools %q, commands %q: they must be the same", got, want)
	}
}

func TestRunArguments(t *testing.T) {
	tests := map[string]struct {
		args             []string
		wantOut, wantErr string
	}{
		"help":            {args: []string{"-help"}, wantOut: "usage: go run . [-out DIR] [names...]\n"},
		"an unknown flag": {args: []string{"-x"}, wantErr: "flag provided but not defined: -x: see -help"},
		"an unknown name": {args: []string{"x"}, wantErr: `unknown name "x"`},
		"not a folder":    {args: []string{"-out", "go.mod"}, wantErr: "making the output folder: mkdir go.mod"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), tt.args, func(string) string { return "" }, &out)
			wantError(t, err, tt.wantErr)
			if !strings.HasPrefix(out.String(), tt.wantOut) {
				t.Errorf("printed %q, want it to begin with %q", out.String(), tt.wantOut)
			}
		})
	}
}

func writeFile(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/false\n"), mode); err != nil {
		t.Fatal(err)
	}
}

// wantError checks that err contains want; an empty want means no error.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want == "":
	case err == nil:
		t.Errorf("no error, want %q", want)
	case want == "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n"):
		t.Errorf("error %q, want one line with %q", err, want)
	}
}
