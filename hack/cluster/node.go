//go:build linux

package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/template"

	"github.com/ostiary/ostiary/test/controlplane"
)

const (
	containerd = "containerd"
	kubelet    = "kubelet"
	pauseImage = "ostiary.dev/pause:1"
	podRange   = "10.244.0.0/16"
)

//go:embed templates
var templates embed.FS

// configuration has the values of the templates.
type configuration struct {
	Home, Address, NodeName, PodRange, PauseImage, PluginFolder string

	Socket, Snapshotter, CAFile, ControlGroup, ProxyKubeconfig string
}

// describe writes the configuration files of the programs, and sets their command lines.
func (k *supervisor) describe() error {
	paths, err := k.paths()
	if err != nil {
		return err
	}
	kubeconfigs := map[string]string{}
	for name, identity := range map[string][]string{
		kubelet:          {"system:node:" + nodeName, "system:nodes"},
		"kube-proxy":     {"system:kube-proxy"},
		"kube-scheduler": {"system:kube-scheduler"},
	} {
		kubeconfigs[name] = k.file(name + ".kubeconfig")
		if err := k.controlPlane.WriteKubeconfig(kubeconfigs[name], identity[0], identity[1:]...); err != nil {
			return err
		}
	}
	if err := k.writeFiles(kubeconfigs["kube-proxy"]); err != nil {
		return err
	}
	cert, key := k.controlPlane.ServingFiles()
	k.programs = map[string]controlplane.Program{}
	for name, p := range map[string]struct {
		args  []string
		probe string
	}{
		// The ports are in the node's network namespace, so all are free.
		containerd: {args: []string{"--config=" + k.file("containerd.toml")}, probe: "http://127.0.0.1:1338/v1/metrics"},
		"kube-scheduler": {
			args: []string{
				"--kubeconfig=" + kubeconfigs["kube-scheduler"], "--leader-elect=false", "--bind-address=127.0.0.1",
				"--tls-cert-file=" + cert, "--tls-private-key-file=" + key,
			},
			probe: "https://127.0.0.1:10259/healthz",
		},
		"kube-proxy": {args: []string{"--config=" + k.file("kube-proxy.yaml")}, probe: "http://127.0.0.1:10256/healthz"},
		kubelet: {args: []string{
			"--config=" + k.file("kubelet.yaml"), "--kubeconfig=" + kubeconfigs[kubelet], "--root-dir=" + kubeletFolder,
			"--hostname-override=" + nodeName, "--node-ip=" + k.address,
		}, probe: "http://127.0.0.1:10248/healthz"},
	} {
		k.programs[name] = controlplane.Program{
			Name: name, Path: paths[name],
			Args:   func([]int) []string { return p.args },
			Probes: func([]int) []string { return []string{p.probe} },
		}
	}
	return nil
}

func (k *supervisor) paths() (map[string]string, error) {
	paths := map[string]string{}
	var err error
	for _, name := range nodePrograms() {
		if paths[name], err = controlplane.Binary(name); err != nil {
			return nil, err
		}
	}
	paths[containerd], err = exec.LookPath(containerd)
	return paths, err
}

// writeFiles writes the templates with their values.
func (k *supervisor) writeFiles(proxyKubeconfig string) error {
	values := configuration{
		Home: k.file(), Address: k.address, NodeName: nodeName, PodRange: podRange, PauseImage: pauseImage, PluginFolder: pluginFolder,
		Socket: k.file(socketFile), Snapshotter: snapshotter(k.file()), CAFile: k.controlPlane.CAFile(),
		ControlGroup: k.controlGroup(), ProxyKubeconfig: proxyKubeconfig,
	}
	all, err := template.ParseFS(templates, "templates/*")
	if err != nil {
		return fmt.Errorf("reading the templates: %w", err)
	}
	if err := os.Mkdir(k.file("cni"), 0o755); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	for name, target := range map[string]string{
		"containerd.toml": "containerd.toml", "kubelet.yaml": "kubelet.yaml", "kube-proxy.yaml": "kube-proxy.yaml",
		"resolv.conf": "resolv.conf", "bridge.conflist": filepath.Join("cni", "10-bridge.conflist"),
	} {
		file, err := os.OpenFile(k.file(target), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return fmt.Errorf("writing %s: %w", target, err)
		}
		err = all.ExecuteTemplate(file, name, values)
		if closing := file.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", target, err)
		}
	}
	return nil
}

const overlayMagic = 0x794c7630

// snapshotter returns overlayfs, or native if the folder is itself an overlay, as in a
// container.
func snapshotter(folder string) string {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err == nil && s.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}
