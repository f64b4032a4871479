package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ostiary/ostiary/internal/registration"
)

// reviewOf returns a review whose request consists of these members.
func reviewOf(members ...string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{` + strings.Join(members, ",") + `}}`
}

const (
	uidMember       = `"uid":"u-1"`
	kindMember      = `"kind":{"group":"","version":"v1","kind":"Pod"}`
	resourceMember  = `"resource":{"group":"","version":"v1","resource":"pods"}`
	operationMember = `"operation":"CREATE"`
	objectMember    = `"object":{"metadata":{"name":"a"}}`
)

func validReview() string {
	return reviewOf(uidMember, kindMember, resourceMember, operationMember, objectMember)
}

// retryError and badError are typed errors of an evaluator.
type retryError time.Duration

func (e retryError) Error() string             { return "group is not loaded yet" }
func (e retryError) RetryAfter() time.Duration { return time.Duration(e) }

type badError bool

func (e badError) Error() string    { return "the object cannot\nbe decoded" }
func (e badError) BadRequest() bool { return bool(e) }

// byGroup answers as the name of the group says.
func byGroup() Evaluator {
	return evaluatorFunc(func(
		ctx context.Context, key registration.GroupKey, _ *admissionv1.AdmissionRequest,
	) (*admissionv1.AdmissionResponse, error) {
		switch key.Name {
		case "unknown":
			return nil, fmt.Errorf("looking up the group: %w", retryError(0))
		case "retry":
			return nil, retryError(1100 * time.Millisecond)
		case "bad":
			return nil, fmt.Errorf("group bad: %w", badError(true))
		case "not-bad":
			return nil, badError(false)
		case "error":
			return nil, errors.New("secret of the evaluator")
		case "nothing":
			return nil, nil
		case "panic":
			panic("secret of the evaluator")
		case "nil-map":
			var m map[string]int
			m["a"] = 1 //nolint:govet,staticcheck // the panic is the point
		case "slow":
			<-ctx.Done()
			return nil, fmt.Errorf("evaluating: %w", ctx.Err())
		}
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	})
}

// badInput is a request that must be answered with an error.
type badInput struct {
	method, path, contentType string // default: POST /validate/group application/json
	body                      string
	chunked                   bool
	wantCode                  int
	wantMessage               string // the whole message if it ends with a line break, else a part
	wantHeader                map[string]string
}

const internalError = "internal error; the log of the replica has the details\n"

// badCalls returns invalid calls, and failures of the evaluator.
func badCalls() map[string]badInput {
	return map[string]badInput{
		"GET": {
			method:      "GET",
			wantCode:    405,
			wantMessage: "the method must be POST\n",
			wantHeader:  map[string]string{"Allow": "POST"},
		},
		"PUT": {
			method:      "PUT",
			body:        validReview(),
			wantCode:    405,
			wantMessage: "the method must be POST\n",
			wantHeader:  map[string]string{"Allow": "POST"},
		},
		"OPTIONS": {
			method:      "OPTIONS",
			wantCode:    405,
			wantMessage: "the method must be POST\n",
			wantHeader:  map[string]string{"Allow": "POST"},
		},
		"text/plain": {
			contentType: "text/plain",
			body:        validReview(),
			wantCode:    415,
			wantMessage: "the content type must be application/json\n",
		},
		"no content type": {
			contentType: "-",
			body:        validReview(),
			wantCode:    415,
			wantMessage: "the content type must be application/json\n",
		},
		"malformed content type": {
			contentType: "application/json; =",
			body:        validReview(),
			wantCode:    415,
			wantMessage: "the content type must be application/json\n",
		},
		"YAML": {
			contentType: "application/yaml",
			body:        validReview(),
			wantCode:    415,
			wantMessage: "the content type must be application/json\n",
		},
		"30 MB body": {
			body:        strings.Repeat(" ", 30<<20),
			wantCode:    413,
			wantMessage: "the body has more than 29360128 bytes\n",
		},
		"30 MB body, not announced": {
			path:        "/validate/group?timeout=30s", // under the race detector, 28 MiB can take more than 10 s
			body:        strings.Repeat(" ", 30<<20),
			chunked:     true,
			wantCode:    413,
			wantMessage: "the body has more than 29360128 bytes\n",
		},
		"timeout is garbage": {
			path:        "/validate/group?timeout=soon",
			body:        validReview(),
			wantCode:    400,
			wantMessage: "the query's timeout must be a positive duration such as 5s\n",
		},
		"timeout is negative": {
			path:        "/validate/group?timeout=-1s",
			body:        validReview(),
			wantCode:    400,
			wantMessage: "the query's timeout must be a positive duration such as 5s\n",
		},
		"query is malformed": {
			path:        "/validate/group?timeout=%zz",
			body:        validReview(),
			wantCode:    400,
			wantMessage: "the query is malformed\n",
		},
		"evaluator knows no group": {
			path:        "/validate/unknown",
			body:        validReview(),
			wantCode:    503,
			wantMessage: "looking up the group: group is not loaded yet\n",
			wantHeader:  map[string]string{"Retry-After": "0"},
		},
		"evaluator wants a retry": {
			path:        "/mutate/retry",
			body:        validReview(),
			wantCode:    503,
			wantMessage: "group is not loaded yet\n",
			wantHeader:  map[string]string{"Retry-After": "2"},
		},
		"evaluator finds it bad": {
			path:        "/mutate/bad",
			body:        validReview(),
			wantCode:    400,
			wantMessage: "group bad: the object cannot be decoded\n",
		},
		"evaluator does not":      {path: "/mutate/not-bad", body: validReview(), wantCode: 500, wantMessage: internalError},
		"evaluator fails":         {path: "/mutate/error", body: validReview(), wantCode: 500, wantMessage: internalError},
		"evaluator has no answer": {path: "/mutate/nothing", body: validReview(), wantCode: 500, wantMessage: internalError},
		"evaluator panics":        {path: "/mutate/panic", body: validReview(), wantCode: 500, wantMessage: internalError},
		"evaluator panics in Go":  {path: "/mutate/nil-map", body: validReview(), wantCode: 500, wantMessage: internalError},
		"evaluator takes too long": {
			path:        "/mutate/slow?timeout=1s",
			body:        validReview(),
			wantCode:    504,
			wantMessage: "no decision within 1s\n",
		},
	}
}

// badReviews returns invalid reviews.
func badReviews() map[string]badInput {
	return map[string]badInput{
		"empty body":  {wantCode: 400, wantMessage: "invalid JSON: the body is empty\n"},
		"white space": {body: " \n", wantCode: 400, wantMessage: "invalid JSON: the body is empty\n"},
		"not JSON": {
			body:        "kind: AdmissionReview",
			wantCode:    400,
			wantMessage: "invalid JSON: invalid character 'k' at start of value (offset 0)\n",
		},
		"null":  {body: "null", wantCode: 400, wantMessage: "the body must be an AdmissionReview in JSON\n"},
		"array": {body: "[]", wantCode: 400, wantMessage: "invalid JSON: unexpected array (offset 0)\n"},
		"truncated JSON": {
			body:        validReview()[:150],
			wantCode:    400,
			wantMessage: `invalid JSON: unexpected end at "/request/resource" (offset 150)` + "\n",
		},
		"two documents": {
			body:     validReview() + validReview(),
			wantCode: 400,
			wantMessage: fmt.Sprintf("invalid JSON: invalid character '{' after top-level value (offset %d)\n",
				len(validReview())),
		},
		"duplicate keys": {
			body:        `{"kind":"AdmissionReview","kind":"AdmissionReview"}`,
			wantCode:    400,
			wantMessage: `invalid JSON: duplicate member at "/kind" (offset 26)` + "\n",
		},
		"two requests": {
			body:        `{"request":{},"request":{}}`,
			wantCode:    400,
			wantMessage: `invalid JSON: duplicate member at "/request" (offset 14)` + "\n",
		},
		"endless nesting": {body: strings.Repeat(`{"a":`, 1<<20), wantCode: 400, wantMessage: "exceeded max depth"},
		"escaped names": {
			body:        strings.Replace(validReview(), `"request"`, `"re\u0071uest"`, 1),
			wantCode:    400,
			wantMessage: "request is missing\n",
		},
		"a million groups": {
			body:        reviewOf(uidMember, `"userInfo":{"groups":[`+strings.Repeat(`"",`, 1_000_000)+`""]}`),
			wantCode:    400,
			wantMessage: "the review has more than 1048576 bytes in addition to its objects\n",
		},
		"CREATE without object": {
			body:        reviewOf(uidMember, kindMember, resourceMember, operationMember, `"object":null`),
			wantCode:    400,
			wantMessage: "request.object is missing: CREATE needs it\n",
		},
		"CREATE with oldObject": {
			body:        reviewOf(uidMember, kindMember, resourceMember, operationMember, objectMember, `"oldObject":{}`),
			wantCode:    400,
			wantMessage: "request.oldObject must not be set: CREATE has none\n",
		},
		"UPDATE without object": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"UPDATE","name":"a","oldObject":{}`),
			wantCode:    400,
			wantMessage: "request.object is missing: UPDATE needs it\n",
		},
		"UPDATE without oldObject": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"UPDATE","name":"a","object":{}`),
			wantCode:    400,
			wantMessage: "request.oldObject is missing: UPDATE needs it\n",
		},
		"UPDATE without name": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"UPDATE","object":{},"oldObject":{}`),
			wantCode:    400,
			wantMessage: "request.name is missing: UPDATE needs it\n",
		},
		"DELETE with object": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","object":{},"oldObject":{}`),
			wantCode:    400,
			wantMessage: "request.object must not be set: DELETE has an oldObject only\n",
		},
		"DELETE without oldObject": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE"`),
			wantCode:    400,
			wantMessage: "request.oldObject is missing: DELETE needs it\n",
		},
		"CONNECT with oldObject": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"CONNECT","oldObject":{}`),
			wantCode:    400,
			wantMessage: "request.oldObject must not be set: CONNECT has none\n",
		},
		"kind of another group": {
			body: reviewOf(uidMember, `"kind":{"group":"apps","version":"v1","kind":"Pod"}`, resourceMember,
				operationMember, objectMember),
			wantCode:    400,
			wantMessage: "request.kind contradicts request.resource: without a subresource, group and version are the same\n",
		},
		"two subresources": {
			body: reviewOf(uidMember, kindMember, resourceMember, operationMember, objectMember,
				`"requestResource":{"version":"v1","resource":"pods"},"requestSubResource":"status"`),
			wantCode:    400,
			wantMessage: "request.requestSubResource contradicts request.subResource\n",
		},
		"namespace of another name": {
			body: reviewOf(uidMember, kindMember, `"resource":{"version":"v1","resource":"namespaces"}`,
				operationMember, objectMember, `"name":"a","namespace":"b"`),
			wantCode:    400,
			wantMessage: "request.namespace contradicts request.name: that of a Namespace is its name\n",
		},
		"wrong brackets": {
			body:        reviewOf(uidMember, `"object":{"a":]}`),
			wantCode:    400,
			wantMessage: `invalid JSON: invalid character ']' after object value (expecting ',' or '}') at "/request/object" (offset 98)` + "\n",
		},
		"two objects": {
			body:        reviewOf(objectMember, objectMember),
			wantCode:    400,
			wantMessage: `invalid JSON: duplicate member at "/request/object" (offset 107)` + "\n",
		},
		"wrong kind": {
			body:        `{"kind":"Pod","apiVersion":"v1"}`,
			wantCode:    400,
			wantMessage: "kind must be AdmissionReview\n",
		},
		"wrong version": {
			body:        strings.Replace(validReview(), "admission.k8s.io/v1", "admission.k8s.io/v2", 1),
			wantCode:    400,
			wantMessage: "apiVersion must be admission.k8s.io/v1 or admission.k8s.io/v1beta1\n",
		},
		"no request": {
			body:        `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`,
			wantCode:    400,
			wantMessage: "request is missing\n",
		},
		"null request": {
			body:        `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}`,
			wantCode:    400,
			wantMessage: "request is missing\n",
		},
		"Request": {
			body:        strings.Replace(validReview(), `"request"`, `"Request"`, 1),
			wantCode:    400,
			wantMessage: "request is missing\n",
		},
		"request is a string": {
			body:        `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":"x"}`,
			wantCode:    400,
			wantMessage: `invalid JSON: unexpected string at "/request" (offset 71)` + "\n",
		},
		"no uid": {
			body:        reviewOf(kindMember, resourceMember, operationMember, objectMember),
			wantCode:    400,
			wantMessage: "request.uid is missing\n",
		},
		"UID": {
			body:        reviewOf(`"UID":"u-1"`, kindMember, resourceMember, operationMember),
			wantCode:    400,
			wantMessage: "request.uid is missing\n",
		},
		"uid is a number": {
			body:        reviewOf(`"uid":1`, kindMember, resourceMember, operationMember),
			wantCode:    400,
			wantMessage: `invalid JSON: unexpected number at "/request/uid" (offset 78)` + "\n",
		},
		"long uid": {
			body:        reviewOf(`"uid":"`+strings.Repeat("u", 254)+`"`, kindMember, resourceMember, operationMember),
			wantCode:    400,
			wantMessage: "request.uid has 254 bytes, more than 253\n",
		},
		"no kind": {
			body:        reviewOf(uidMember, resourceMember, operationMember),
			wantCode:    400,
			wantMessage: "request.kind.version is missing\n",
		},
		"no resource": {
			body:        reviewOf(uidMember, kindMember, operationMember),
			wantCode:    400,
			wantMessage: "request.resource.version is missing\n",
		},
		"no operation": {
			body:        reviewOf(uidMember, kindMember, resourceMember),
			wantCode:    400,
			wantMessage: "request.operation must be CREATE, UPDATE, DELETE or CONNECT\n",
		},
		"operation in small letters": {
			body:        reviewOf(uidMember, kindMember, resourceMember, `"operation":"create"`),
			wantCode:    400,
			wantMessage: "request.operation must be CREATE, UPDATE, DELETE or CONNECT\n",
		},
		"object is an array": {
			body:        reviewOf(uidMember, kindMember, resourceMember, operationMember, `"object":[]`),
			wantCode:    400,
			wantMessage: "request.object must be a JSON object; found: array\n",
		},
		"old object is a string": {
			body:        reviewOf(uidMember, kindMember, resourceMember, operationMember, `"oldObject":"x"`),
			wantCode:    400,
			wantMessage: "request.oldObject must be a JSON object; found: string\n",
		},
	}
}

// badPaths returns paths that name no phase and group.
func badPaths() map[string]badInput {
	cases := map[string]badInput{}
	for _, path := range []string{
		"/", "/validate", "/validate/", "/validate//group", "//validate/group", "/validate/group/", "/validate/group/x",
		"/validate/../validate/group",
		"/validate/./group", "/validate/%2e%2e/group", "/validate/%67roup", "/validate%2fgroup", "/validate/Group",
		"/validate/-group", "/validate/group.",
		"/validate/a..b", "/validate/gr_oup", "/validate/gr\u00f6up", "/convert/group", "/metrics", "/validate/" + strings.Repeat("a", 254), "*",
	} {
		cases["path "+path] = badInput{
			path: path, body: validReview(), wantCode: 404,
			wantMessage: "no such path\n",
		}
	}
	return cases
}

// TestBadInput sends invalid requests to one server, and after each of them a valid one.
func TestBadInput(t *testing.T) {
	var logs lockedBuffer
	s := start(t, Options{Evaluator: byGroup(), Log: logs.logger(0)})
	client := s.client(t)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, cases := range []map[string]badInput{badCalls(), badReviews(), badPaths()} {
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				tc.check(t, client, s)
				expectAllowed(t, client, s.url("/validate/group"))
			})
		}
	}
	for _, text := range []string{
		`"metadata"`, "panic with a value of type string", "assignment to entry in nil map", "secret of the evaluator",
	} {
		if got, want := strings.Contains(logs.String(), text), text != `"metadata"`; got != want {
			t.Errorf("%q in the log: %t, want %t", text, got, want)
		}
	}
	if strings.Contains(logs.String(), "panic: secret") {
		t.Error("the log repeats the value of a panic")
	}
}

func (tc badInput) check(t *testing.T, client *http.Client, s *running) {
	t.Helper()
	var body io.Reader = strings.NewReader(tc.body)
	if tc.chunked {
		body = io.MultiReader(body)
	}
	r, err := http.NewRequest(orDefault(tc.method, "POST"), s.url("/"), body)
	if err != nil {
		t.Fatal(err)
	}
	setTarget(r, orDefault(tc.path, "/validate/group"))
	if value := orDefault(tc.contentType, contentType); value != "-" {
		r.Header.Set("Content-Type", value)
	}
	response := send(t, client, r)
	if response.code != tc.wantCode {
		t.Errorf("code %d, want %d", response.code, tc.wantCode)
	}
	if strings.HasSuffix(tc.wantMessage, "\n") {
		if diff := cmp.Diff(tc.wantMessage, response.body); diff != "" {
			t.Errorf("message (-want +got):\n%s", diff)
		}
	} else if !strings.Contains(response.body, tc.wantMessage) {
		t.Errorf("message %q, want one with %q", response.body, tc.wantMessage)
	}
	if len(response.body) > 1100 || strings.Count(response.body, "\n") != 1 {
		t.Errorf("message of %d bytes, want one short line", len(response.body))
	}
	for key, want := range tc.wantHeader {
		if got := response.header.Get(key); got != want {
			t.Errorf("header %s is %q, want %q", key, got, want)
		}
	}
	if got := response.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

// setTarget makes the request ask for the path exactly as it is written.
func setTarget(r *http.Request, target string) {
	path, query, _ := strings.Cut(target, "?")
	r.URL.Opaque = path
	if strings.HasPrefix(path, "//") { // would be taken for a host
		r.URL.Opaque = r.URL.Scheme + "://" + r.URL.Host + path
	}
	r.URL.RawQuery = query
}

type answer struct {
	code   int
	header http.Header
	body   string
	close  bool
}

func send(t *testing.T, client *http.Client, r *http.Request) answer {
	t.Helper()
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body), response.Close}
}

func post(t *testing.T, client *http.Client, url, body string) answer {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	return send(t, client, r)
}

func expectAllowed(t *testing.T, client *http.Client, url string) {
	t.Helper()
	got := post(t, client, url, validReview())
	want := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"u-1","allowed":true}}`
	if got.code != http.StatusOK || got.body != want {
		t.Errorf("answer %d %s, want 200 %s", got.code, got.body, want)
	}
}

// TestAnswer checks that everything a response can hold arrives, in the version of the question.
func TestAnswer(t *testing.T) {
	patchType := admissionv1.PatchTypeJSONPatch
	full := &admissionv1.AdmissionResponse{
		UID:     "not the one asked for",
		Allowed: false,
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid, Message: "no <b>, no €",
			Details: &metav1.StatusDetails{Kind: "Pod", Causes: []metav1.StatusCause{{Field: "spec", Message: "wrong"}}}},
		Patch:            []byte(`[{"op":"remove","path":"/a"}]`),
		PatchType:        &patchType,
		AuditAnnotations: map[string]string{"b": "2", "a": "1"},
		Warnings:         []string{"first", "second"},
	}
	evaluator := evaluatorFunc(func(
		context.Context, registration.GroupKey, *admissionv1.AdmissionRequest,
	) (*admissionv1.AdmissionResponse, error) {
		return full, nil
	})
	want := full.DeepCopy()
	want.UID = "u-1"
	s := handlerOf(t, Options{Evaluator: evaluator})
	for _, version := range []string{"admission.k8s.io/v1", "admission.k8s.io/v1beta1"} {
		t.Run(version, func(t *testing.T) {
			w := serve(s, "/mutate/group", strings.Replace(validReview(), "admission.k8s.io/v1", version, 1))
			if got := w.Header().Get("Content-Type"); w.Code != http.StatusOK || got != contentType {
				t.Fatalf("code %d, content type %q, want 200 and %q", w.Code, got, contentType)
			}
			var v1 admissionv1.AdmissionReview
			var v1beta1 admissionv1beta1.AdmissionReview
			for _, into := range []any{&v1, &v1beta1} {
				d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
				d.DisallowUnknownFields()
				if err := d.Decode(into); err != nil {
					t.Fatalf("decoding the answer as %T: %v", into, err)
				}
			}
			if diff := cmp.Diff(metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: version}, v1.TypeMeta); diff != "" {
				t.Errorf("type (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, v1.Response); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
		})
	}
	if full.UID != "not the one asked for" {
		t.Error("the evaluator's response was changed")
	}
}

// TestRequest checks the request that the evaluator gets.
func TestRequest(t *testing.T) {
	yes := true
	gvk, gvr := metav1.GroupVersionKind{
		Group:   "apps",
		Version: "v1",
		Kind:    "Deployment",
	}, metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	full := admissionv1.AdmissionRequest{
		UID: "u-2", Kind: gvk, Resource: gvr, SubResource: "scale", RequestKind: &gvk, RequestResource: &gvr, RequestSubResource: "scale",
		Name: "shop", Namespace: "prod", Operation: admissionv1.Update,
		UserInfo: authenticationv1.UserInfo{
			Username: "ann",
			UID:      "7",
			Groups:   []string{"a", "b"},
			Extra:    map[string]authenticationv1.ExtraValue{"k": {"v"}},
		},
		Object:    runtime.RawExtension{Raw: []byte(`{"a":"é\n"}`)},
		OldObject: runtime.RawExtension{Raw: []byte(`{"a":1.50}`)},
		DryRun:    &yes,
		Options:   runtime.RawExtension{Raw: []byte(`{"kind":"UpdateOptions"}`)},
	}
	encoded, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request:  &full,
	})
	if err != nil {
		t.Fatal(err)
	}
	del := admissionv1.AdmissionRequest{
		UID: "u-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: admissionv1.Delete,
		OldObject: runtime.RawExtension{Raw: []byte(`{"a":1}`)},
	}
	const oldObject = `"oldObject":{"a":1}`
	deep := strings.Repeat(`{"a":`, 9_999) + `{}` + strings.Repeat(`}`, 9_999)
	cases := map[string]struct {
		body string
		want admissionv1.AdmissionRequest
	}{
		"every field": {body: string(encoded), want: full},
		"white space": {
			body: indented(t, encoded),
			want: withRaw(full, "{\n      \"a\": \"é\\n\"\n    }", "{\n      \"a\": 1.50\n    }",
				"{\n      \"kind\": \"UpdateOptions\"\n    }"),
		},
		"members of later API": {
			body: strings.Replace(string(encoded), `"uid"`, `"later":{"x":[1]},"uid"`, 1),
			want: full,
		},
		"nil objects on DELETE": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","object":null,"options":null`,
				oldObject),
			want: del,
		},
		"absent objects": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE"`, oldObject),
			want: del,
		},
		"10,000 deep": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","oldObject":`+deep),
			want: withRaw(del, "", deep, ""),
		},
		"duplicates within": {
			body: reviewOf(uidMember, kindMember, resourceMember,
				`"operation":"DELETE","later":{"a":1,"a":2},"oldObject":{"a":1,"a":2}`),
			want: withRaw(del, "", `{"a":1,"a":2}`, ""),
		},
		"strings that end late": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","oldObject":{"\\\"}":"\"\\"}`),
			want: withRaw(del, "", `{"\\\"}":"\"\\"}`, ""),
		},
		"names in another case": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","Object":{"a":1},"dryrun":true`,
				oldObject),
			want: del,
		},
		"null where a string was": {
			body: reviewOf(uidMember, kindMember, resourceMember, `"operation":"DELETE","name":null,"dryRun":null`, oldObject),
			want: del,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got *admissionv1.AdmissionRequest
			var group registration.GroupKey
			var left time.Duration
			s := handlerOf(t, Options{Evaluator: evaluatorFunc(func(
				ctx context.Context, key registration.GroupKey, r *admissionv1.AdmissionRequest,
			) (*admissionv1.AdmissionResponse, error) {
				deadline, _ := ctx.Deadline()
				got, group, left = r, key, time.Until(deadline)
				return &admissionv1.AdmissionResponse{}, nil
			})})
			w := serve(s, "/mutate/group-1.x?timeout=25s", tc.body)
			if w.Code != http.StatusOK {
				t.Fatalf("code %d: %s", w.Code, w.Body)
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if want := (registration.GroupKey{
				Phase: registration.PhaseMutate,
				Name:  "group-1.x",
			}); group != want || left <= 10*time.Second || left > 25*time.Second {
				t.Errorf("group %v, %s left; want %v, nearly 25s", group, left, want)
			}
		})
	}
}

// The review of policies has one path, and answers like any other.
func TestReviewPath(t *testing.T) {
	var group registration.GroupKey
	m := prometheus.NewRegistry()
	s := handlerOf(t, Options{Registerer: m,
		Evaluator: evaluatorFunc(func(
			_ context.Context, key registration.GroupKey, _ *admissionv1.AdmissionRequest,
		) (*admissionv1.AdmissionResponse, error) {
			group = key
			return &admissionv1.AdmissionResponse{Allowed: true}, nil
		})})
	if w := serve(s, "/validate-webhookpolicy?timeout=5s", validReview()); w.Code != http.StatusOK ||
		group != (registration.GroupKey{Phase: "review"}) {
		t.Errorf("code %d, group %v; want 200 and a review", w.Code, group)
	}
	for _, path := range []string{
		"/validate-webhookpolicy/", "/validate-webhookpolicy/x", "/review/x", "/review", "/validate%2dwebhookpolicy",
	} {
		if w := serve(s, path, validReview()); w.Code != http.StatusNotFound {
			t.Errorf("path %s: code %d, want 404", path, w.Code)
		}
	}
}

func indented(t *testing.T, raw []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func withRaw(r admissionv1.AdmissionRequest, object, oldObject, options string) admissionv1.AdmissionRequest {
	for to, raw := range map[*runtime.RawExtension]string{&r.Object: object, &r.OldObject: oldObject, &r.Options: options} {
		if raw != "" {
			to.Raw = []byte(raw)
		}
	}
	return r
}

func TestRequestTimeout(t *testing.T) {
	cases := map[string]time.Duration{
		"": 10 * time.Second, "?": 10 * time.Second, "?timeout=": 10 * time.Second, "?other=1": 10 * time.Second, "?timeout=5s": 5 * time.Second,
		"?timeout=1ms": time.Second, "?timeout=30s": 30 * time.Second, "?timeout=1h": 30 * time.Second,
		"?a=b&timeout=2.5s": 2500 * time.Millisecond,
	}
	for query, want := range cases {
		r := httptest.NewRequest(http.MethodPost, "/validate/group"+query, nil)
		if got, err := requestTimeout(r.URL); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", query, got, err, want)
		}
	}
}

func TestContentTypes(t *testing.T) {
	for value, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "Application/JSON": true, "application/json;v=1;w=2": true,
		"": false, "json": false, "application/jsonx": false, "text/json": false, "application/json, text/plain": false,
	} {
		if got := isJSON(value); got != want {
			t.Errorf("%q: %t, want %t", value, got, want)
		}
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := handlerOf(t, Options{Evaluator: byGroup(), Registerer: registry})
	serve(s, "/validate/group", validReview())
	serve(s, "/validate/group", validReview())
	serve(s, "/mutate/panic", validReview())
	serve(s, "/mutate/group", "{")
	serve(s, "/nowhere", validReview())
	want := map[string]float64{
		`ostiary_webhook_http_requests_total code=200 phase=validate`: 2,
		`ostiary_webhook_http_requests_total code=500 phase=mutate`:   1,
		`ostiary_webhook_http_requests_total code=400 phase=mutate`:   1,
		`ostiary_webhook_http_requests_total code=404 phase=other`:    1,
		`ostiary_webhook_http_request_duration_seconds phase=mutate`:  2,
		`ostiary_webhook_panics_total`:                                1,
		`ostiary_webhook_http_requests_in_flight`:                     0,
	}
	got := gather(t, registry)
	for series, value := range want {
		if got[series] != value {
			t.Errorf("%s is %v, want %v", series, got[series], value)
		}
	}
	if _, err := New(Options{
		Address:        ":0",
		GetCertificate: newPair(t).get,
		Accepts:        acceptsAll,
		Evaluator:      allowAll(),
		Registerer:     registry,
	}); err == nil {
		t.Error("a second server registered the same metrics")
	}
}

// gather returns the value of every series, and the count of histograms.
func gather(t *testing.T, gatherer prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			series := family.GetName()
			for _, label := range metric.GetLabel() {
				series += " " + label.GetName() + "=" + label.GetValue()
			}
			values[series] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// TestDecisionLog checks that decisions are logged only when asked for, and without the object.
func TestDecisionLog(t *testing.T) {
	for verbosity, want := range map[int]bool{0: false, 1: true} {
		var logs lockedBuffer
		s := handlerOf(t, Options{Log: logs.logger(verbosity)})
		serve(s, "/validate/group", validReview())
		if got := strings.Contains(logs.String(), `"Decided"`); got != want {
			t.Errorf("verbosity %d: decision logged: %t, want %t:\n%s", verbosity, got, want, logs.String())
		}
		if strings.Contains(logs.String(), "metadata") {
			t.Errorf("the log repeats the object:\n%s", logs.String())
		}
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := New(Options{
		MaxBodyBytes:     -1,
		MaxConnections:   -1,
		MaxEvaluations:   -1,
		MaxInFlight:      -2,
		MaxInFlightBytes: -2,
		MaxDecodedBytes:  -1,
		Drain:            Drain{Min: time.Minute, Quiet: -1, Max: time.Second},
	})
	want := strings.Join([]string{
		"configuring the webhook server: set Address or Listener", "set GetCertificate", "set Accepts", "set Evaluator",
		"MaxBodyBytes must be positive",
		"MaxConnections must be positive", "MaxEvaluations must be positive", "MaxInFlight must be at least MaxEvaluations",
		"MaxInFlightBytes must be at least MaxBodyBytes",
		"MaxDecodedBytes must be positive", "Drain.Min and Drain.Quiet must be positive", "Drain.Max must be at least Drain.Min",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func handlerOf(t *testing.T, o Options) http.Handler {
	t.Helper()
	o.Address, o.GetCertificate = ":0", newPair(t).get
	if o.Accepts == nil {
		o.Accepts = acceptsAll
	}
	if o.Evaluator == nil {
		o.Evaluator = allowAll()
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

func serve(h http.Handler, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// lockedBuffer collects a log.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) logger(verbosity int) logr.Logger {
	return funcr.New(func(_, line string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.text.WriteString(line + "\n")
	}, funcr.Options{Verbosity: verbosity})
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
