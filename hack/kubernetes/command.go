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
}

func commands() []command {
	return []command{
		{name: "etcd", module: etcdModule, path: etcdModule, minutes: 1, asset: true},
		kubernetes("kube-apiserver", 5, true),
		kubernetes("kube-controller-manager", 2, false),
		kubernetes("kubectl", 1, true),
	}
}

func kubernetes(name string, minutes int, asset bool) command {
	return command{name: name, module: kubernetesModule, path: kubernetesModule + "/cmd/" + name, minutes: minutes, asset: asset}
}

func names(commands []command) []string {
	var out []string
	for _, c := range commands {
		out = append(out, c.name)
	}
	return out
}

// withoutAssets returns the wanted commands that the folder assets lacks.
// envtest's assets have no kube-controller-manager, so that may be missing; a
// folder without the others is a mistake that building would hide.
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
