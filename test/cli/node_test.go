package cli

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// startNode adds a node to the cluster whose kubelet forwards ports of Pods to ports of
// this machine, with the protocol and the library of the real one.
func startNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(forwardPorts))
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	created, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	must(t, err)
	created.Status = node.Status
	_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	must(t, err)
}

// forwardPorts serves /portForward/NAMESPACE/POD.
func forwardPorts(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return // it has answered
	}
	streams := make(chan httpstream.Stream, 8)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if connection == nil {
		return
	}
	defer func() { _ = connection.Close() }()
	problems := map[string]httpstream.Stream{}
	for {
		select {
		case <-connection.CloseChan():
			return
		case s := <-streams: // the stream for errors comes first
			id := s.Headers().Get(corev1.PortForwardRequestIDHeader)
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
				problems[id] = s
				continue
			}
			go forward(s, problems[id])
		}
	}
}

func forward(data, problems httpstream.Stream) {
	defer func() { _, _ = data.Close(), problems.Close() }()
	to, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", data.Headers().Get(corev1.PortHeader)), 5*time.Second)
	if err != nil {
		_, _ = fmt.Fprintf(problems, "error forwarding port: %v", err)
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() { _, _ = io.Copy(to, data) })
	_, _ = io.Copy(data, to)
	_ = to.Close()
	_ = data.Reset()
	copying.Wait()
}

// startPod adds a Pod on a node to the cluster.
func startPod(t *testing.T, client kubernetes.Interface, namespace, name, node string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "webhook", Image: "registry.example.com/webhook:1"}}},
	}
	created, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	created.Status.Phase = corev1.PodRunning
	_, err = client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
	must(t, err)
}

// serveTLS serves over TLS, and returns the port.
func serveTLS(t *testing.T, certificate tls.Certificate, handler http.Handler) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	must(t, err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}
