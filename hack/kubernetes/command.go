package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS"

	etcdModule       = "go.etcd.io/etcd/server/v3"
	kubernetesModule = "k8s.io/kubernetes"
)

// command is one program to build.
type command struct {
	name    string // of the file
	module  string // whose version in go.mod is built
	path    string // import path of the main package
	minutes int    // to build it after those above it with an empty cache, on two cores
	asset   bool   // KUBEBUILDER_ASSETS must hold it
	node    bool   // only a cluster with a node needs it: built when asked for by name
}

func commands() []command {
	return []command{
		{name: "etcd", module: etcdModule, path: etcdModule, minutes: 1, asset: true},
		kubernetes(command{name: "kube-apiserver", minutes: 5, asset: true}),
		kubernetes(command{name: "kube-controller-manager", minutes: 2}),
		kubernetes(command{name: "kubectl", minutes: 1, asset: true}),
		kubernetes(command{name: "kube-scheduler", minutes: 1, node: true}),
		kubernetes(command{name: "kube-proxy", minutes: 1, node: true}),
		kubernetes(command{name: "kubelet", minutes: 2, node: true}),
	}
}

func kubernetes(c command) command {
	c.module, c.path = kubernetesModule, kubernetesModule+"/cmd/"+c.name
	return c
}

// controlPlane returns the commands that are built by default.
func controlPlane() []command {
	return slices.DeleteFunc(commands(), func(c command) bool { return c.node })
}

func names(commands []command) []string {
	var out []string
	for _, c := range commands {
		out = append(out, c.name)
	}
	return out
}

// withoutAssets returns the wanted commands that are not in the folder assets. Only
// kube-controller-manager may be missing, as in the assets of envtest: a folder without the
// others is an error of its user.
func withoutAssets(wanted []command, assets string, stdout io.Writer) ([]command, error) {
	held := func(c command) bool { return isProgram(filepath.Join(assets, c.name)) }
	missing := slices.DeleteFunc(commands(), func(c command) bool { return !c.asset || held(c) })
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s=%s lacks %s: add what is missing or unset the variable",
			assetsVariable, assets, strings.Join(names(missing), ", "))
	}
	rest := slices.DeleteFunc(slices.Clone(wanted), held)
	if len(rest) < len(wanted) {
		used := slices.DeleteFunc(slices.Clone(wanted), func(c command) bool { return !held(c) })
		fmt.Fprintf(stdout, "using %s of %s=%s\n", strings.Join(names(used), ", "), assetsVariable, assets)
	}
	if len(rest) > 0 {
		fmt.Fprintf(stdout, "%s: not in %s\n", strings.Join(names(rest), ", "), assetsVariable)
	}
	return rest, nil
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
