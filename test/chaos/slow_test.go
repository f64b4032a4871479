package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

const (
	slowPlace   = "chaos-slow"
	slowTimeout = 3 * time.Second
	// slowRate is how many requests a second wait for the slow policy.
	slowRate = 20
	// unanswered is what they get, whose images are not allowed.
	unanswered = "denied the request"
)

// slowClients opens connections from addresses of their own, beside the load:
// 10,000 that say nothing, 3,000 that say nothing after the handshake, and 300 that
// send a request byte by byte (slowloris). Whenever one is closed another takes
// its place. Honest callers must not notice.
func slowClients(r *run) {
	r.limits.quiet = true
	period := time.Duration(r.size.of(15, 60)) * time.Second
	pause(r.T, 5*time.Second)
	mark := time.Now()
	pause(r.T, period)
	before := r.load.p99Since(mark)
	mark = time.Now()
	end := r.startFlood(period / 2)
	pause(r.T, period*3/2)
	var files []string
	for _, m := range r.all() {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", m.running.PID()))
		must(r.T, err)
		files = append(files, strconv.Itoa(len(entries)))
	}
	during := r.load.p99Since(mark)
	r.note("p99 %s before and %s meanwhile, open files %s, %s", before.Round(time.Millisecond),
		during.Round(time.Millisecond), strings.Join(files, ", "), end())
	r.within("the p99 meanwhile", during, 2*before)
}

// What the program reads that floods, beside the time that it takes to open all
// connections.
const (
	floodVariable = "OSTIARY_CHAOS_FLOOD" // the addresses
	floodOver     = "OSTIARY_CHAOS_FLOOD_OVER"
)

// startFlood starts this program anew, to flood the replicas. Whoever does that
// has processors of their own; here they get what others leave. The result ends it,
// and says what it says.
func (r *run) startFlood(over time.Duration) (end func() string) {
	var addresses []string
	for _, m := range r.all() {
		addresses = append(addresses, m.webhook)
	}
	own, err := os.Executable()
	must(r.T, err)
	var out bytes.Buffer
	cmd := exec.CommandContext(r.Context(), "nice", "-n", "19", own)
	cmd.Env = append(os.Environ(), floodVariable+"="+strings.Join(addresses, ","), floodOver+"="+over.String())
	cmd.Stdout, cmd.Stderr = &out, &out
	stdin, err := cmd.StdinPipe() // its end is the end of the flood
	must(r.T, err)
	must(r.T, cmd.Start())
	return func() string {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			r.problem("the flood: %v: %s", err, &out)
		}
		return strings.TrimSpace(out.String())
	}
}

// flood is what that program does, until it reads the end of its input.
func flood() (code int) {
	addresses := strings.Split(os.Getenv(floodVariable), ",")
	over, err := time.ParseDuration(os.Getenv(floodOver))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	var group sync.WaitGroup
	var opened atomic.Int64
	const each = 133
	for i := range 100 * each {
		talk := silent
		switch n := i % each; {
		case n < 3:
			talk = dribbling
		case n < 33:
			talk = shaken
		}
		group.Go(func() { hold(ctx, addresses[i%len(addresses)], &opened, talk) })
		if i%each == 0 {
			time.Sleep(over / 100)
		}
	}
	group.Wait()
	fmt.Printf("%d connections opened", opened.Load())
	return 0
}

// hold keeps a connection, anew whenever it is closed.
func hold(ctx context.Context, address string, opened *atomic.Int64, talk func(context.Context, net.Conn)) {
	source := &net.TCPAddr{IP: net.IPv4(127, 100, byte(rand.IntN(256)), byte(1+rand.IntN(254)))}
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: source}
	for ctx.Err() == nil {
		if c, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			opened.Add(1)
			ended := context.AfterFunc(ctx, func() { _ = c.Close() })
			talk(ctx, c)
			ended()
			_ = c.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// silent waits for the end of a connection.
func silent(_ context.Context, c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// shaken is silent after the handshake.
func shaken(ctx context.Context, c net.Conn) {
	if out := shake(ctx, c); out != nil {
		silent(ctx, out)
	}
}

// dribbling sends a byte a second.
func dribbling(ctx context.Context, c net.Conn) {
	out := shake(ctx, c)
	for out != nil && ctx.Err() == nil {
		if _, err := out.Write([]byte("x")); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

func shake(ctx context.Context, c net.Conn) net.Conn {
	out := tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}) // nothing secret is sent
	if out.HandshakeContext(ctx) != nil {
		return nil
	}
	return out
}

// slowBackend has a policy that takes 10 seconds for each request, if it is let:
// it asks a backend about images. Who waits for it is answered when the time is
// over, and no other client notices.
func slowBackend(r *run) {
	r.limits.quiet = true
	r.makeSlow(r.hanging())
	var callers []client.Client
	for i := range apiServers {
		config := r.plane.Config(i)
		config.QPS, config.Timeout, config.WarningHandler = -1, requestTimeout, rest.NoWarnings{}
		c, err := client.New(config, client.Options{Scheme: r.admin().Scheme()})
		must(r.T, err)
		callers = append(callers, c)
		await(r.T, "the slow policy", func() error {
			if _, err := creates(r.Context(), c, "probe"); err == nil || !strings.Contains(err.Error(), unanswered) {
				return fmt.Errorf("it does not refuse: %w", err)
			}
			return nil
		})
	}
	period := time.Duration(r.size.of(10, 60)) * time.Second
	mark := time.Now()
	pause(r.T, period)
	before := r.load.p99Since(mark)
	mark = time.Now()
	longest, wrong := r.wait(callers, period)
	during := r.load.p99Since(mark)
	must(r.T, r.admin().Delete(r.Context(), slowPolicy()))
	if wrong != "" {
		r.problem("a request for the slow policy was not refused: %s", wrong)
	}
	r.within("a request for the slow policy", longest, slowTimeout+100*time.Millisecond)
	r.within("the p99 of the others", during, before+5*time.Millisecond)
	r.note("requests for it answered within %s, p99 of the others %s before and %s meanwhile",
		longest.Round(time.Millisecond), before.Round(time.Millisecond), during.Round(time.Millisecond))
}

// wait sends requests for the slow policy for some time, and returns the longest
// that one took, and an answer that was wrong.
func (r *run) wait(callers []client.Client, period time.Duration) (longest time.Duration, wrong string) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range int(period.Seconds()) * slowRate {
		group.Go(func() {
			took, err := creates(r.Context(), callers[i%len(callers)], fmt.Sprintf("image-%d", i))
			mu.Lock()
			defer mu.Unlock()
			if longest = max(longest, took); err == nil || !strings.Contains(err.Error(), unanswered) {
				wrong = fmt.Sprint(err)
			}
		})
		time.Sleep(time.Second / slowRate)
	}
	group.Wait()
	return longest, wrong
}

// creates asks for a Pod, and tells how long the answer took.
func creates(ctx context.Context, c client.Client, image string) (time.Duration, error) {
	began := time.Now()
	err := c.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: slowPlace, Name: "p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}, client.DryRunAll)
	return time.Since(began), err
}

// hanging is a backend that takes 10 seconds for an answer.
func (r *run) hanging() *httptest.Server {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-req.Context().Done():
		case <-time.After(10 * time.Second):
		}
	}))
	r.Cleanup(s.Close)
	return s
}

// makeSlow applies the slow policy, and what it needs.
func (r *run) makeSlow(backend *httptest.Server) {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})
	kubeconfig := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}]}",
		backend.URL, base64.StdEncoding.EncodeToString(ca))
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: slowPlace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: slowPlace, Name: "default"}}, // Pods have to have one
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "ostiary-image-policy"},
			StringData: map[string]string{"kubeconfig": kubeconfig},
		},
		slowPolicy(),
	} {
		must(r.T, r.admin().Create(r.Context(), o))
	}
}

func slowPolicy() *v1alpha1.WebhookPolicy {
	return &v1alpha1.WebhookPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: slowPlace},
		Spec: v1alpha1.WebhookPolicySpec{
			TimeoutSeconds: ptr.To(int32(slowTimeout.Seconds())),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: slowPlace}},
			},
			Plugin: &v1alpha1.Plugin{
				Name:   v1alpha1.PluginImagePolicyWebhook,
				Config: &runtime.RawExtension{Raw: []byte(`{"imagePolicy":{"kubeConfigSecret":{"name":"ostiary-image-policy"}}}`)},
			},
		},
	}
}
