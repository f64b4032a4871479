package integration

import (
	"testing"

	"github.com/ostiary/ostiary/test/balancer"
)

// balance starts a balancer on an address, which ends with the test.
func balance(t *testing.T, address string) *balancer.Balancer {
	t.Helper()
	b, err := balancer.Listen(address, balancer.RoundRobin)
	must(t, err)
	t.Cleanup(b.Close)
	return b
}
