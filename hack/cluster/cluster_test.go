//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"
)

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		args    []string
		wantErr string
	}{
		"no command":         {wantErr: "no command: see -help"},
		"an unknown command": {args: []string{"start"}, wantErr: `unknown command "start": see -help`},
		"an unknown flag":    {args: []string{"-x"}, wantErr: "flag provided but not defined: -x: see -help"},
		"a name too long": {
			args:    []string{"-name", "abcdefghijkl", "down"},
			wantErr: `-name "abcdefghijkl": use 1 to 11 lower-case letters and digits`,
		},
		"a name with a path":  {args: []string{"-name", "../x", "down"}, wantErr: `-name "../x": use`},
		"no image":            {args: []string{"load-image"}, wantErr: "load-image takes 1 arguments, not 0"},
		"down with something": {args: []string{"down", "now"}, wantErr: "down takes 0 arguments, not 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := run(t.Context(), tt.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestMissingPackages(t *testing.T) {
	tests := map[string]struct {
		installed []string
		want      []string
	}{
		"all there": {installed: []string{
			"containerd", "ctr", "runc", "iptables", "ip", "mount",
			pluginFolder + "/bridge", pluginFolder + "/host-local", pluginFolder + "/portmap",
		}},
		"a plugin is missing": {
			installed: []string{"containerd", "ctr", "runc", "iptables", "ip", "mount", pluginFolder + "/bridge"},
			want:      []string{"containernetworking-plugins"},
		},
		"nothing there": {want: []string{"containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "mount"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := missingPackages(func(program string) (string, error) {
				if slices.Contains(tt.installed, program) {
					return program, nil
				}
				return "", exec.ErrNotFound
			})
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The templates are whole, and say what containerd and the kubelet read.
func TestTemplates(t *testing.T) {
	all, err := template.New("").Option("missingkey=error").ParseFS(templates, "templates/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet.yaml", "kube-proxy.yaml", "bridge.conflist"} {
		var out strings.Builder
		if err := all.ExecuteTemplate(&out, name, configuration{
			Home:         "/home",
			Address:      "10.0.0.1",
			Socket:       "/x.sock",
			ControlGroup: "/group",
		}); err != nil {
			t.Fatal(err)
		}
		var parsed map[string]any
		if strings.HasSuffix(name, ".yaml") {
			err = yaml.UnmarshalStrict([]byte(out.String()), &parsed)
		} else {
			err = json.Unmarshal([]byte(out.String()), &parsed)
		}
		if err != nil {
			t.Errorf("%s: %v:\n%s", name, err, out.String())
		}
	}
}

func TestRemoveTree(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := removeTree(root); err != nil {
		t.Errorf("what is not there: %v, want no error", err)
	}
	if err := os.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := removeTree(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestFreeSubnet(t *testing.T) {
	s, err := freeSubnet()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.host(), "10.241.") || s.host() == s.node() {
		t.Errorf("addresses %s and %s", s.host(), s.node())
	}
}
