package policy

import "testing"

// TestExpressionsReachNothing: expressions have no function that calls a URL, reads
// the cluster or an image registry, or writes objects. Policy engines that have one
// act on behalf of the author of a policy.
func TestExpressionsReachNothing(t *testing.T) {
	for _, expression := range []string{
		`http.Get("http://169.254.169.254/").status == 200`,
		`resource.Get("v1", "secrets", "kube-system", "ca") != null`,
		`globalContext.Get("secrets", "") != null`,
		`image.GetMetadata("registry.example.com/a") != null`,
		`generator.apply("kube-system", [object])`,
		`kubernetes.list("v1", "Secret") != null`,
	} {
		t.Run(expression, func(t *testing.T) {
			if _, errs := sharedCompiler.Compile(policyFrom(t, "p", "validations: [{expression: '"+expression+"'}]")); len(errs) == 0 {
				t.Error("it compiles")
			}
		})
	}
}
