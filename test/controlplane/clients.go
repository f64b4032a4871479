package controlplane

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const managerKubeconfig = "kube-controller-manager.kubeconfig"

func adminKubeconfigName(i int) string { return fmt.Sprintf("admin-%d.kubeconfig", i) }

// restConfig has no limit on the rate of requests: tests and benchmarks measure
// the server, not their own client.
func (c *certificates) restConfig(client keyPair, host string) *rest.Config {
	return &rest.Config{
		Host:            host,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca, CertData: client.cert, KeyData: client.key},
		QPS:             -1,
	}
}

func (c *certificates) writeKubeconfig(client keyPair, host, file string) error {
	const name = "ostiary"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: c.ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: client.cert, ClientKeyData: client.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
