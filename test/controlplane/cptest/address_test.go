package cptest

import (
	"net"
	"sync"
	"testing"
)

func TestFreeAddressesDiffer(t *testing.T) {
	var seen sync.Map
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 100 {
				address := FreeAddress()
				if _, again := seen.LoadOrStore(address, true); again {
					t.Errorf("got %s twice", address)
				}
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Errorf("listening: %v", err)
					continue
				}
				_ = l.Close()
			}
		})
	}
	callers.Wait()
}
