package registry

import (
	"math/big"
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// Free space, as a pure question: what of a prefix is left when the taken ones are
// taken away.

// firstFit finds the first blocks of a length that overlap none of the taken
// prefixes, up to count of them. taken is sorted by first address; its members may
// overlap or contain each other.
func firstFit(pool netip.Prefix, taken []netip.Prefix, bits, count int) []netip.Prefix {
	var found []netip.Prefix
	end := netipx.PrefixLastIP(pool)
	at := pool.Addr() // all before it is taken or given
	for _, t := range taken {
		found, at = fill(found, at, t.Addr().Prev(), bits, count)
		if len(found) == count {
			return found
		}
		// The last address of all has no next one: then nothing is left.
		if last := netipx.PrefixLastIP(t); at.Compare(last) <= 0 {
			if at = last.Next(); !at.IsValid() {
				return found
			}
		}
	}
	found, _ = fill(found, at, end, bits, count)
	return found
}

// fill appends the blocks that lie between two addresses, and answers where it ended.
func fill(found []netip.Prefix, at, end netip.Addr, bits, count int) ([]netip.Prefix, netip.Addr) {
	for len(found) < count && end.IsValid() && at.Compare(end) <= 0 {
		block := blockFrom(at, bits)
		if !block.IsValid() || netipx.PrefixLastIP(block).Compare(end) > 0 {
			break
		}
		found = append(found, block)
		next := netipx.PrefixLastIP(block).Next()
		if !next.IsValid() {
			return found, end
		}
		at = next
	}
	return found, at
}

// blockFrom is the first block of a length that begins at an address or after it;
// the zero prefix where the address space ends before.
func blockFrom(at netip.Addr, bits int) netip.Prefix {
	block := netip.PrefixFrom(at, bits).Masked()
	if block.Addr() == at {
		return block
	}
	next := netipx.PrefixLastIP(block).Next()
	if !next.IsValid() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(next, bits)
}

// left is what of a prefix is not taken, in as few prefixes as possible, in order.
func left(pool netip.Prefix, taken []netip.Prefix) []netip.Prefix {
	var b netipx.IPSetBuilder
	b.AddPrefix(pool)
	for _, t := range taken {
		b.RemovePrefix(t)
	}
	set, err := b.IPSet()
	if err != nil {
		return nil // prefixes of the database are valid
	}
	return set.Prefixes()
}

// size is how many addresses prefixes hold that do not overlap.
func size(prefixes ...netip.Prefix) *big.Int {
	sum := new(big.Int)
	for _, p := range prefixes {
		sum.Add(sum, new(big.Int).Lsh(big.NewInt(1), uint(p.Addr().BitLen()-p.Bits())))
	}
	return sum
}

// largest is the length of the largest of some prefixes; false where there is none.
func largest(prefixes []netip.Prefix) (bits int, ok bool) {
	for i, p := range prefixes {
		if i == 0 || p.Bits() < bits {
			bits = p.Bits()
		}
	}
	return bits, len(prefixes) > 0
}

// sortSpace puts prefixes in the order of their first addresses.
func sortSpace(prefixes []netip.Prefix) {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
}

// together is the one prefix that some prefixes make up exactly; otherwise ok is false.
func together(prefixes []netip.Prefix) (whole netip.Prefix, ok bool) {
	var b netipx.IPSetBuilder
	for _, p := range prefixes {
		b.AddPrefix(p)
	}
	set, err := b.IPSet()
	if err != nil {
		return netip.Prefix{}, false
	}
	all := set.Prefixes()
	if len(all) != 1 {
		return netip.Prefix{}, false
	}
	return all[0], true
}

// parts are the blocks of a length that a prefix consists of.
func parts(p netip.Prefix, bits int) []netip.Prefix {
	return firstFit(p, nil, bits, 1<<(bits-p.Bits()))
}
