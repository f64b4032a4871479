package registration

import (
	"crypto/sha256"
	"math/big"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

const (
	// MaxMembers is how many policies one call group holds.
	MaxMembers = 500

	// maxGroupSize keeps a configuration well below the 1.5 MiB that etcd
	// accepts, together with its members and owner references.
	maxGroupSize = 512 << 10

	resourceBits = 16
	nameBits     = 48
	addressBits  = resourceBits + nameBits
)

// address is a fixed string of bits that says where a policy goes when its
// group has to be divided: a hash of the resources that it names, then a hash
// of its name.
type address [addressBits / 8]byte

func newAddress(resources, name string) address {
	r, n := sha256.Sum256([]byte(resources)), sha256.Sum256([]byte(name))
	var a address
	copy(a[copy(a[:], r[:resourceBits/8]):], n[:])
	return a
}

func (a address) bit(i int) byte { return a[i/8] >> (7 - i%8) & 1 }

// resourceSignature names the resources of rules, without API groups and
// subresources. Policies for any resource have a signature of their own, so
// that they do not make every part of a divided group see every request.
func resourceSignature(rules []admissionregistrationv1.RuleWithOperations) string {
	var names []string
	for i := range rules {
		for _, r := range rules[i].Resources {
			name, _, _ := strings.Cut(r, "/")
			if name == wildcard {
				return wildcard
			}
			names = append(names, name)
		}
	}
	return strings.Join(sortedSet(names), ",")
}

// bucket is a call group in the making: the policies with equal settings whose
// addresses begin with a prefix.
type bucket struct {
	prefix  string
	entries []*Entry
}

// divide splits policies with equal settings into buckets that are small
// enough. One that is too large is divided by the next bit of its policies'
// addresses, so policies for the same resources stay together as long as they
// can, and a request meets few groups.
//
// A policy's bucket depends on its address and on how many policies there are
// near it, never on the rest: adding or removing one changes one bucket. It
// renames others only where a bucket crosses the limit and becomes two, or two
// become one again. The new ones are then in force before the old ones go (see
// Diff).
func divide(entries []*Entry) []bucket {
	return bucket{entries: entries}.divide(nil)
}

func (b bucket) divide(out []bucket) []bucket {
	if b.fits() || len(b.prefix) == addressBits {
		return append(out, b)
	}
	halves := [2]bucket{{prefix: b.prefix + "0"}, {prefix: b.prefix + "1"}}
	for _, entry := range b.entries {
		half := &halves[entry.address.bit(len(b.prefix))]
		half.entries = append(half.entries, entry)
	}
	for _, half := range halves {
		if len(half.entries) > 0 {
			out = half.divide(out)
		}
	}
	return out
}

func (b bucket) fits() bool {
	size := 0
	for _, entry := range b.entries {
		size += entry.size
	}
	return len(b.entries) == 1 || len(b.entries) <= MaxMembers && size <= maxGroupSize
}

// name is the settings' name. Where their policies are divided, the prefix
// follows in hexadecimal, with a 1 in front that keeps leading zeros apart. The
// longest form, ignore-30s-<16 digits>-<17 digits>, is a DNS label.
func (b bucket) name() string {
	if b.prefix == "" {
		return b.entries[0].groupName
	}
	bits, _ := new(big.Int).SetString("1"+b.prefix, 2)
	return b.entries[0].groupName + "-" + bits.Text(16)
}

func (b bucket) rules() []admissionregistrationv1.RuleWithOperations {
	if ordered := b.entries[0].ordered; ordered != nil {
		out := make([]admissionregistrationv1.RuleWithOperations, len(ordered))
		for i := range ordered {
			ordered[i].DeepCopyInto(&out[i])
		}
		return out
	}
	lists := make([][]atom, len(b.entries))
	for i, entry := range b.entries {
		lists[i] = entry.atoms
	}
	return union(lists...)
}
