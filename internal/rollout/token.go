package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ostiary/ostiary/api/v1alpha1"
)

// keyBytes is the number of bytes of a hash in tokens and in policyHash.
const keyBytes = 8

// newToken returns the token of a step that begins. It differs from all earlier ones, because it contains the last one.
func newToken(uid types.UID, binding, step, last string, since time.Time) string {
	return hashOf([]any{uid, binding, step, last, since.Unix()})
}

// afterCommand returns another token for the same beginning of a step: "<key>-<number of commands>". One that another client
// has written without that form is replaced, because the API server rejects a longer one.
func afterCommand(token string) string {
	key, number, _ := strings.Cut(token, "-")
	n, _ := strconv.Atoi(number)
	if key != EvidenceKey(token) || n < 0 || n >= math.MaxInt32 {
		return hashOf([]any{token})
	}
	return fmt.Sprintf("%s-%d", key, n+1)
}

// EvidenceKey is what the tokens of one beginning of a step have in common. It is one word, also for a token that another
// client has written, because Leases have a line for each key.
func EvidenceKey(token string) string {
	key, _, _ := strings.Cut(token, "-")
	isOther := func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') }
	if len(key) > 2*keyBytes || strings.ContainsFunc(key, isOther) {
		return hashOf([]any{key})
	}
	return key
}

// policyHash returns a hash of what can alter the decisions of a binding in a step, or in the final action with a nil step:
// another object or request can violate the policy, or another namespace gets the actions.
func policyHash(spec *v1alpha1.WebhookPolicySpec, b *v1alpha1.Binding, step *v1alpha1.RolloutStep) string {
	decisive := *spec.DeepCopy()
	decisive.Audit, decisive.TimeoutSeconds, decisive.Bindings = nil, nil, []v1alpha1.Binding{*b.DeepCopy()}
	decisive.Bindings[0].Rollout = nil
	for i := range decisive.Validations {
		v := &decisive.Validations[i]
		v.Message, v.MessageExpression, v.Reason = "", "", nil
	}
	if step == nil {
		return hashOf([]any{decisive})
	}
	return hashOf([]any{decisive, step.ValidationActions, step.MutationAction, step.NamespaceSelector})
}

// hashOf returns a hash of values that can always be encoded: strings, numbers, lists and structs of them.
func hashOf(values []any) string {
	encoded, err := json.Marshal(values)
	if err != nil {
		panic(fmt.Sprintf("encoding %d values: %v", len(values), err))
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:keyBytes])
}
