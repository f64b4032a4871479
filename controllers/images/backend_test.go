package images

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ostiary/ostiary/internal/pluginapi"
	"github.com/ostiary/ostiary/internal/policy"
	"github.com/ostiary/ostiary/test/plugintest"
)

// decider is a backend whose response depends on the first image.
type decider struct {
	*httptest.Server
	asked, strayed atomic.Int32
	last           atomic.Pointer[imagepolicyv1alpha1.ImageReview]
}

func newDecider(t *testing.T) *decider {
	d := &decider{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /review", d.review)
	mux.HandleFunc("/elsewhere", func(http.ResponseWriter, *http.Request) { d.strayed.Add(1) })
	d.Server = httptest.NewTLSServer(mux)
	t.Cleanup(d.Close)
	return d
}

func (d *decider) review(w http.ResponseWriter, r *http.Request) {
	n := d.asked.Add(1)
	var review imagepolicyv1alpha1.ImageReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	d.last.Store(review.DeepCopy())
	switch image := review.Spec.Containers[0].Image; image {
	case "hangs":
		<-r.Context().Done()
		return
	case "garbage":
		fmt.Fprint(w, "<html>")
		return
	case "huge":
		fmt.Fprintf(w, `{"status": {"allowed": true, "reason": %q}}`, strings.Repeat("a", maxAnswer))
		return
	case "redirects":
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		return
	case "broken":
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	case "recovers":
		if n < 3 {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		review.Status.Allowed = true
	case "another kind":
		review.Kind, review.Status.Allowed = "Pod", true
	case "another version":
		review.APIVersion, review.Status.Allowed = "imagepolicy.k8s.io/v1", true
	default:
		review.Status = imagepolicyv1alpha1.ImageReviewStatus{Allowed: strings.HasPrefix(image, "good"), AuditAnnotations: map[string]string{"seen": "yes"}}
		if image == "bad" {
			review.Status.Reason = "it is bad"
		}
	}
	_ = json.NewEncoder(w).Encode(review)
}

func (d *decider) kubeconfig() []byte {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.Certificate().Raw}))
	return []byte(config(d.URL+"/review", "certificate-authority-data: "+ca, "token: secret"))
}

func config(server, cluster, user string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: %q, %s}}], users: [{name: a, user: {%s}}]}",
		server, cluster, user)
}

// known implements pluginapi.Images with the one backend.
type known struct{ kubeconfig []byte }

func (k known) Backend(pluginapi.SecretKey) (pluginapi.ImageBackend, error) {
	return newBackend(k.kubeconfig)
}

const settings = "plugin: {name: ImagePolicyWebhook, config: {imagePolicy: {kubeConfigSecret: {name: s}, retryBackoff: -1, defaultAllow: %t}}}"

func pod(image string) string {
	return plugintest.Pod(fmt.Sprintf("{containers: [{name: a, image: %q}]}", image))
}

func TestAnswers(t *testing.T) {
	const denied = `pods "web" is forbidden: `
	tests := map[string]struct {
		want  string // the message begins with it; empty if it is allowed
		asked int32
		fails bool // there is no answer: defaultAllow decides
	}{
		"good":            {asked: 1},
		"bad":             {want: denied + "image policy webhook backend denied one or more images: it is bad", asked: 1},
		"silent":          {want: denied + "one or more images rejected by webhook backend", asked: 1},
		"recovers":        {asked: 3},
		"broken":          {want: denied + "an error on the server (", asked: 5, fails: true},
		"garbage":         {want: denied + "the response of the image policy backend is not an ImageReview: ", asked: 1, fails: true},
		"huge":            {want: denied + "the response of the image policy backend exceeds 64 KiB", asked: 1, fails: true},
		"redirects":       {want: denied + "the server responded with the status code 307", asked: 1, fails: true},
		"another kind":    {want: denied + `the response of the image policy backend has kind "Pod" in version "imagepolicy.k8s.io/v1alpha1" instead of ImageReview in imagepolicy.k8s.io/v1alpha1`, asked: 1, fails: true},
		"another version": {want: denied + `the response of the image policy backend has kind "ImageReview" in version "imagepolicy.k8s.io/v1" instead of`, asked: 1, fails: true},
	}
	for image, tc := range tests {
		for _, open := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", image, open), func(t *testing.T) {
				d := newDecider(t)
				got := plugintest.Ask(t, fmt.Sprintf(settings, open), plugintest.Request{Object: pod(image)}, policy.Environment{Images: known{d.kubeconfig()}})
				want, annotation := tc.want, ""
				if open && tc.fails {
					want, annotation = "", "true"
				}
				if !strings.HasPrefix(got.Message, want) || (want == "") != (got.Code == 0) || got.Code != 0 && got.Code != 403 {
					t.Errorf("%d %q, want %q", got.Code, got.Message, want)
				}
				if got.Annotations["p.failed-open"] != annotation {
					t.Errorf("audit annotations %v, want failed-open %q", got.Annotations, annotation)
				}
				if n := d.asked.Load(); n != tc.asked || d.strayed.Load() != 0 {
					t.Errorf("asked %d times, want %d; followed %d redirects", n, tc.asked, d.strayed.Load())
				}
			})
		}
	}
}

// TestHangs: a backend that does not answer is given up before the request is. By the clock
// of the policy, one second of the request is left, so that the call ends soon; the request
// itself has a minute, so that a busy machine does not end it.
func TestHangs(t *testing.T) {
	d := newDecider(t)
	group, _ := plugintest.Compile(t, fmt.Sprintf(settings, true))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end, _ := ctx.Deadline()
	host := policy.Environment{Images: known{d.kubeconfig()}, Now: func() time.Time { return end.Add(-time.Second) }}
	response, err := group.Validate(ctx, plugintest.Request{Object: pod("hangs")}.Review(t), host)
	if err != nil || !response.Allowed || response.AuditAnnotations["p.failed-open"] != "true" || ctx.Err() != nil {
		t.Errorf("%+v, %v; the request is at its end: %v", response, err, ctx.Err())
	}
}

func TestQuestions(t *testing.T) {
	d := newDecider(t)
	host := policy.Environment{Images: known{d.kubeconfig()}}
	object := "{apiVersion: v1, kind: Pod, metadata: {name: web, annotations: {a: b, x.image-policy.k8s.io/y: z}}, spec: {containers: [{name: a, image: good-a}], initContainers: [{name: i, image: good-i}], ephemeralContainers: [{name: e, image: good-e}]}}"
	spec := fmt.Sprintf(settings, false)
	plugintest.Ask(t, spec, plugintest.Request{Object: object}, host)
	got := d.last.Load()
	if fmt.Sprint(got.Spec) != "{[{good-a} {good-i}] map[x.image-policy.k8s.io/y:z] shop}" || got.Kind != "ImageReview" {
		t.Errorf("asked %+v", got)
	}
	plugintest.Ask(t, spec, plugintest.Request{Object: object, OldObject: object, Operation: "UPDATE", Subresource: "ephemeralcontainers"}, host)
	if got := d.last.Load(); fmt.Sprint(got.Spec.Containers) != "[{good-e}]" {
		t.Errorf("asked about ephemeral containers with %+v", got)
	}
}

// TestRemembered checks that a decision is cached until it expires or the
// configuration changes.
func TestRemembered(t *testing.T) {
	tests := map[string]struct {
		image, settings string
		want            int32
	}{
		"allowed":            {image: "good", settings: "", want: 1},
		"denied":             {image: "bad", settings: "", want: 1},
		"allowed, for never": {image: "good", settings: "allowTTL: -1, ", want: 2},
		"denied, for never":  {image: "bad", settings: "denyTTL: -1, ", want: 2},
		"no answer":          {image: "garbage", settings: "", want: 2},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDecider(t)
			spec := "plugin: {name: ImagePolicyWebhook, config: {imagePolicy: {" + tc.settings + "kubeConfigSecret: {name: s}}}}"
			host := policy.Environment{Images: known{d.kubeconfig()}}
			first, next := plugintest.Judge(t, spec), plugintest.Judge(t, spec+"\nbreakGlass: false")
			plugintest.Put(t, plugintest.GroupOf(first.Compiled), first.Policy, plugintest.Request{Object: pod(tc.image)}, host)
			next.Compiled.InheritState(first.Compiled)
			plugintest.Put(t, plugintest.GroupOf(next.Compiled), next.Policy, plugintest.Request{Object: pod(tc.image)}, host)
			if n := d.asked.Load(); n != tc.want {
				t.Errorf("asked %d times, want %d", n, tc.want)
			}
		})
	}
}

func TestKubeconfigs(t *testing.T) {
	const server = "https://images.example.com/review"
	tests := map[string]struct{ kubeconfig, want string }{
		"fine":              {kubeconfig: config(server, "", "token: secret")},
		"nothing":           {kubeconfig: "", want: "it has no current context with a cluster that has a server"},
		"garbage":           {kubeconfig: "secret: [", want: "it is not a kubeconfig"},
		"plain HTTP":        {kubeconfig: config("http://images.example.com", "", ""), want: "server: must be an https URL, for example https://images.example.com/review"},
		"a password in it":  {kubeconfig: config("https://a:secret@images.example.com", "", ""), want: "server: must be an https URL, for example https://images.example.com/review"},
		"not verified":      {kubeconfig: config(server, "insecure-skip-tls-verify: true", ""), want: "insecure-skip-tls-verify: not allowed; use certificate-authority-data"},
		"a file of CAs":     {kubeconfig: config(server, "certificate-authority: /etc/secret", ""), want: "certificate-authority: files are not read; use certificate-authority-data"},
		"files of a client": {kubeconfig: config(server, "", "client-certificate: /a, client-key: /b"), want: "client-certificate and client-key: files are not read; use client-certificate-data and client-key-data"},
		"a file of a token": {kubeconfig: config(server, "", "tokenFile: /a"), want: "tokenFile: files are not read; use token"},
		"a program":         {kubeconfig: config(server, "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/secret, interactiveMode: Never}"), want: "exec and auth-provider: programs are not run; use token, or client-certificate-data and client-key-data"},
		"no certificate":    {kubeconfig: config(server, "certificate-authority-data: c2VjcmV0", ""), want: "its certificates or its key are invalid"},
		"no context":        {kubeconfig: strings.Replace(config(server, "", ""), "current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], ", "", 1), want: "it has no current context with a cluster that has a server"},
		"several clusters":  {kubeconfig: strings.Replace(config(server, "", "token: secret"), "clusters: [", "clusters: [{name: b, cluster: {server: \"http://b\"}}, ", 1)},
		"another context":   {kubeconfig: strings.Replace(config(server, "", ""), "current-context: a", "current-context: b", 1), want: "it has no current context with a cluster that has a server"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, err := newBackend([]byte(tc.kubeconfig)); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestSecrets checks that a client is created once per version of a Secret, and
// that an invalid Secret is not a decision.
func TestSecrets(t *testing.T) {
	var secret *corev1.Secret
	var problem error
	hasSynced := false
	w := &watch{
		data:    func() (map[string][]byte, bool) { return nil, hasSynced },
		secret:  func() *corev1.Secret { return secret },
		problem: func() error { return problem },
	}
	s := New(nil, "ostiary-system", logr.Discard())
	s.watches.Store(&map[string]*watch{"s": w})
	at := pluginapi.SecretKey{Name: "s", Key: "kubeconfig"}
	put := func(version, key, value string) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}, Data: map[string][]byte{key: []byte(value)}}
	}
	const start = "Secret ostiary-system/s, with the kubeconfig of the image policy backend"
	fails := func(at pluginapi.SecretKey, want string) {
		t.Helper()
		if _, err := s.Backend(at); err == nil || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fails(pluginapi.SecretKey{Name: "t"}, "Secret ostiary-system/t, with the kubeconfig of the image policy backend, is not watched yet")
	fails(at, start+": it has not been read yet: wait some seconds")
	for reason, failure := range map[string]error{
		"Ostiary may not watch it: grant get, list and watch of Secret s in namespace ostiary-system to the ServiceAccount of Ostiary": apierrors.NewForbidden(corev1.Resource("secrets"), "s", nil),
		"it cannot be read: see the log of Ostiary": apierrors.NewTimeoutError("secret.example.com does not answer", 1),
	} {
		problem = failure
		fails(at, start+": "+reason)
	}
	problem = nil
	hasSynced = true
	fails(at, start+": it does not exist: create it in namespace ostiary-system")
	put("1", "other", "secret")
	fails(at, start+": it has no field kubeconfig")
	put("2", "kubeconfig", "secret")
	fails(at, start+": field kubeconfig: it is not a kubeconfig")
	put("3", "kubeconfig", config("https://one.example.com", "", "token: a"))
	one, err := s.Backend(at)
	again, errAgain := s.Backend(at)
	if err != nil || errAgain != nil || one != again {
		t.Errorf("%v and %v, %v and %v", one, again, err, errAgain)
	}
	put("4", "kubeconfig", config("https://two.example.com", "", "token: b"))
	if two, err := s.Backend(at); err != nil || two == one {
		t.Errorf("after a change: %v, %v", two, err)
	}
	got := plugintest.Ask(t, fmt.Sprintf(settings, true), plugintest.Request{Object: pod("good")}, policy.Environment{Images: New(nil, "ostiary-system", logr.Discard())})
	if got.Code != 422 || !strings.HasSuffix(got.Message, "is not watched yet") {
		t.Errorf("no backend, with defaultAllow: %d %q", got.Code, got.Message)
	}
}
