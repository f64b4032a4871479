package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsSuspended(t *testing.T) {
	noon := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		until time.Time
		want  bool
	}{
		"no time":                {time.Time{}, false},
		"ended":                  {noon, false},
		"a nanosecond":           {noon.Add(1), true},
		"the longest":            {noon.Add(MaxSuspension), true},
		"longer":                 {noon.Add(MaxSuspension + 1), false},
		"longer than a Duration": {noon.AddDate(1000, 0, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsSuspended(tt.until, noon); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
		})
	}
}

func TestSuspendedUntil(t *testing.T) {
	noon := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		annotation string
		backend    *Backend
		want       time.Time
	}{
		"absent":         {},
		"a time":         {annotation: "2027-03-01T12:00:00Z", want: noon},
		"another zone":   {annotation: "2027-03-01T13:00:00+01:00", want: noon},
		"a duration":     {annotation: "1h"},
		"a day":          {annotation: "2027-03-01"},
		"with a backend": {annotation: "2027-03-01T12:00:00Z", backend: &Backend{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &WebhookPolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationSuspendedUntil: tt.annotation}}}
			p.Spec.Backend = tt.backend
			if got := p.SuspendedUntil(); !got.Equal(tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
