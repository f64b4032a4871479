package registration

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestWebhooksOfBothKinds fails when a version of the API adds a field that the
// conversions between the kinds would lose.
func TestWebhooksOfBothKinds(t *testing.T) {
	var validating admissionregistrationv1.ValidatingWebhook
	from := reflect.ValueOf(&validating).Elem()
	for i := range from.NumField() {
		fill(from.Field(i))
	}
	general := fromValidating(&validating)
	to := reflect.ValueOf(&general).Elem()
	for i := range to.NumField() {
		if name := to.Type().Field(i).Name; to.Field(i).IsZero() != (name == "ReinvocationPolicy") {
			t.Errorf("field %s: zero is %t", name, to.Field(i).IsZero())
		}
	}
	if diff := cmp.Diff(validating, toValidating(&general)); diff != "" {
		t.Errorf("there and back (-want +got):\n%s", diff)
	}
}

// fill makes a value other than zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int32:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		fill(v.Field(0))
	}
}

func TestOverwritten(t *testing.T) {
	for _, group := range planOf(policyFor("a", "pods", doingBoth)).Groups {
		t.Run(string(group.Phase), func(t *testing.T) {
			want := group.Configuration
			have := stored(want)
			edit(have, func(c *config) {
				c.Labels["team"] = "x"
				c.Webhooks = append(c.Webhooks, c.Webhooks[0])
				c.Webhooks[0].MatchConditions = never()
			})
			before := clone(have)
			got := Overwritten(have, want)
			if !Carries(got, want) {
				t.Error("what was overwritten does not carry what is planned")
			}
			if view(got).Labels["team"] != "x" || got.GetResourceVersion() != have.GetResourceVersion() {
				t.Error("more than the webhooks was overwritten")
			}
			scribble(&Webhooks(got)[0])
			if diff := cmp.Diff(before, have); diff != "" {
				t.Errorf("what was observed changed:\n%s", diff)
			}
			if got := Webhooks(want)[0].ClientConfig.CABundle; string(got) != "bundle" {
				t.Errorf("what is planned shares its contents with the result: bundle %q", got)
			}
		})
	}
}
