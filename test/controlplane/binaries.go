package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names of the programs, as files and, with a number for API servers, as components.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	kubectl           = "kubectl"
)

const (
	assetsVariable = "KUBEBUILDER_ASSETS"
	modulePath     = "github.com/ostiary/ostiary"
)

// BinDir returns the folder that holds etcd, kube-apiserver and kubectl:
// KUBEBUILDER_ASSETS when set, else bin/k8s of the repository that the working
// directory is in.
func BinDir() (string, error) {
	dir, remedy := os.Getenv(assetsVariable), "add what is missing or unset "+assetsVariable
	if dir == "" {
		var err error
		if dir, err = builtDir(); err != nil {
			return "", err
		}
		remedy = "run `make kubernetes`"
	}
	var missing []string
	for _, name := range []string{Etcd, APIServer, kubectl} {
		if !isProgram(filepath.Join(dir, name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("finding the control plane: %s has no %s: %s", dir, strings.Join(missing, ", "), remedy)
	}
	return dir, nil
}

// Binary returns the path of one program. What BinDir lacks (envtest's assets
// have no kube-controller-manager) is taken from bin/k8s of the repository.
func Binary(name string) (string, error) {
	dir, err := BinDir()
	if err != nil {
		return "", err
	}
	if path := filepath.Join(dir, name); isProgram(path) {
		return path, nil
	}
	built, err := builtDir()
	if err != nil {
		return "", err
	}
	if path := filepath.Join(built, name); isProgram(path) {
		return path, nil
	}
	return "", fmt.Errorf("finding the control plane: no %s in %s: run `make kubernetes`", name, built)
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// builtDir is where `make kubernetes` puts the programs.
func builtDir() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		module, err := moduleOf(filepath.Join(dir, "go.mod"))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("finding the repository: %w", err)
		case module == modulePath:
			return filepath.Join(dir, "bin", "k8s"), nil
		case dir == filepath.Dir(dir):
			return "", fmt.Errorf("finding the repository: no go.mod of %s in %s or above it: set %s", modulePath, start, assetsVariable)
		}
	}
}

func moduleOf(goMod string) (string, error) {
	file, err := os.Open(goMod)
	if err != nil {
		return "", err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if path, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", lines.Err()
}
