package applypatch

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// TestEveryCharacter has the parser of API servers read patches.
func TestEveryCharacter(t *testing.T) {
	var all strings.Builder
	for r := range rune(utf8.MaxRune) {
		if utf8.ValidRune(r) && (r < 0x10000 || r%251 == 0) {
			all.WriteRune(r)
		}
	}
	want := map[string]string{"text": all.String()}
	body, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(body, &map[string]string{}); err == nil {
		t.Error("the parser accepts every character without a change: the package is no longer needed")
	}
	var got map[string]string
	if err := yaml.Unmarshal(send(t, types.ApplyYAMLPatchType, body), &got); err != nil {
		t.Fatal(err)
	}
	for i, r := range want["text"] {
		if !strings.HasPrefix(got["text"][min(i, len(got["text"])):], string(r)) {
			t.Fatalf("the text differs at U+%04X", r)
		}
	}
}

func TestOtherPatches(t *testing.T) {
	body := []byte("{\"text\":\"\u007f\"}")
	if got := send(t, types.MergePatchType, body); !bytes.Equal(got, body) {
		t.Errorf("got %q, want %q", got, body)
	}
}

// send sends a patch through the transport and returns what the server receives.
func send(t *testing.T, kind types.PatchType, patch []byte) []byte {
	t.Helper()
	var received []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received, _ = io.ReadAll(r.Body) // the caller compares it
	}))
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, bytes.NewReader(patch))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", string(kind))
	response, err := (&http.Client{Transport: Wrap(http.DefaultTransport)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close() // it is empty
	return received
}
