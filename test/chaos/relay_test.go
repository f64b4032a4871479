package chaos

import "github.com/ostiary/ostiary/test/balancer"

// relay is a way to one address, which can be held.
type relay struct {
	*balancer.Balancer
	to string
}

func newRelay(to string) (*relay, error) {
	b, err := balancer.Listen("127.0.0.1:0", balancer.RoundRobin)
	if err != nil {
		return nil, err
	}
	b.Add(to)
	return &relay{Balancer: b, to: to}, nil
}

func (r *relay) address() string { return r.Address() }

func (r *relay) hold() { r.Hold(r.to) }

func (r *relay) release() { r.Release(r.to) }

func (r *relay) close() { r.Close() }
