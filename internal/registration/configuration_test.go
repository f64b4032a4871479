package registration

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// TestWebhooksOfBothKinds fails if a new version of the API has a field that the
// conversions between the kinds lose.
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
		t.Errorf("after both conversions (-want +got):\n%s", diff)
	}
}

// fill sets a value that is not zero.
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

// A patch contains the result of Webhooks: its JSON is that of the webhooks
// themselves.
func TestWebhooksEncodeAsTheirOwnKind(t *testing.T) {
	for _, group := range planOf(policyFor("a", "pods", doingBoth)).Groups {
		general, err := json.Marshal(Webhooks(group.Configuration))
		if err != nil {
			t.Fatal(err)
		}
		var own any
		switch c := group.Configuration.(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			own = c.Webhooks
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			own = c.Webhooks
		}
		want, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal(general, &b)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("phase %s (-own +general):\n%s", group.Phase, diff)
		}
	}
}
