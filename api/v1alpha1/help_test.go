package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestHelpURL(t *testing.T) {
	for name, tt := range map[string]struct{ annotation, want string }{
		"https":          {"https://wiki.example.com/labels?team#how", "https://wiki.example.com/labels?team#how"},
		"http":           {"http://wiki/labels", "http://wiki/labels"},
		"absent":         {"", ""},
		"a path":         {"/labels", ""},
		"without a host": {"https:///labels", ""},
		"a script":       {"javascript:alert(1)", ""},
		"a second line":  {"https://wiki.example.com/\nError: none", ""},
		"spaces":         {"https://wiki.example.com/a b", "https://wiki.example.com/a%20b"},
		"too long":       {"https://wiki.example.com/" + strings.Repeat("a", MaxHelpBytes), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationHelp: tt.annotation}}}
			if got := p.HelpURL(); got != tt.want {
				t.Errorf("HelpURL() = %q, want %q", got, tt.want)
			}
		})
	}
}
