package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
	"github.com/ostiary/ostiary/internal/validation"
)

// FuzzBuild plans any input that decodes as policies. Nothing may panic, the order
// must not matter, an applied plan must need no changes, and policies that Check
// accepts must be registered in valid configurations.
func FuzzBuild(f *testing.F) {
	for seed := range uint64(10) {
		content, err := json.Marshal(randomPolicies(rand.New(rand.NewPCG(seed, 7)), 5))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(`[{},{"spec":{"matchConstraints":{"resourceRules":[{}]}}}]`))
	f.Fuzz(func(t *testing.T, content []byte) {
		var decoded []*v1alpha1.WebhookPolicy
		if len(content) > 1<<16 || json.Unmarshal(content, &decoded) != nil {
			t.Skip()
		}
		decoded = slices.DeleteFunc(decoded, func(p *v1alpha1.WebhookPolicy) bool { return p == nil })
		var accepted []*v1alpha1.WebhookPolicy
		for i, policy := range decoded {
			policy.Name = fmt.Sprintf("policy-%d", i)
			policy.UID = types.UID(policy.Name)
			if len(validation.Check(policy)) == 0 {
				accepted = append(accepted, policy)
			}
		}
		Build(Input{Policies: decoded})
		plan := planOf(accepted...)
		checkConfigurations(t, plan)
		observed := observe(plan)
		if changes := Diff(plan, observed); !changes.Empty() {
			t.Errorf("an applied plan needs changes: %v", actions(changes))
		}
		view := NewView(plan, observed)
		for _, policy := range accepted {
			if _, ok, why := view.Registered(Prepare(policy)); !ok {
				t.Errorf("%s is not registered: %s", policy.Name, why)
			}
		}
		want := planJSON(t, plan)
		slices.Reverse(accepted)
		if got := planJSON(t, planOf(accepted...)); !bytes.Equal(want, got) {
			t.Errorf("order matters:\n%s", cmp.Diff(string(want), string(got)))
		}
	})
}
