package rpsltest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// Generate makes a registry of about n objects (at least one network of each
// family) and a history of about n/20 changes, at least 20.
func Generate(seed uint64, n int) *Registry {
	g := &generator{
		rand:    rand.New(rand.NewPCG(seed, 0x4875624e)),
		holders: n/4 + 3,
		index:   map[string]int{},
	}
	g.roots()
	for len(g.objects) < n {
		g.apply(g.newHolder())
	}
	r := &Registry{Objects: g.current(), Mistakes: g.mistakes(n/100 + 7)}
	for i := range max(20, n/20) {
		changes := g.change()
		g.apply(changes)
		r.History = append(r.History, Merge{N: i, Changes: changes})
	}
	r.Final = g.current()
	return r
}

// generator keeps the present objects by key.
type generator struct {
	rand    *rand.Rand
	holders int
	blocks  int // blocks of address space given out
	objects []Object
	index   map[string]int
}

func (g *generator) apply(edits []Edit) {
	for _, e := range edits {
		id := e.Class + " " + e.Key
		at, there := g.index[id]
		switch {
		case e.Op == "delete" && there:
			last := len(g.objects) - 1
			g.objects[at] = g.objects[last]
			g.index[g.objects[at].Class+" "+g.objects[at].Key] = at
			g.objects = g.objects[:last]
			delete(g.index, id)
		case e.Op == "put" && there:
			g.objects[at].Text = e.Text
		case e.Op == "put":
			g.index[id] = len(g.objects)
			g.objects = append(g.objects, Object{Class: e.Class, Key: e.Key, Text: e.Text})
		}
	}
}

func (g *generator) current() []Object { return append([]Object{}, g.objects...) }

// chance is true in percent of all calls.
func (g *generator) chance(percent int) bool { return g.rand.IntN(100) < percent }

// roots are the whole address space and the registry's own blocks, which it hosts.
func (g *generator) roots() {
	for _, cidr := range []string{"0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/14", "::/0", "fd00::/8"} {
		p := netip.MustParsePrefix(cidr)
		var servers []string
		if p.Bits() > 0 {
			servers = []string{"b." + OwnNameServers[2:], "j." + OwnNameServers[2:]}
		}
		text := networkText(p, "REGISTRY-MNT", "ALLOCATED", servers, nil)
		g.apply([]Edit{put(networkClass(p), p, text+"policy: reserved\n")})
	}
}

// block4 and block6 are the address space of one holder.
func block4(i int) netip.Prefix {
	at := uint32(10<<24) + uint32(i)<<8
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), 0}), 24)
}

func block6(i int) netip.Prefix {
	at := [16]byte{0xfd}
	scrambled := uint64(i) * 0x9e3779b97f & 0xffffffffff // odd, so that blocks differ
	for j := range 5 {
		at[1+j] = byte(scrambled >> (32 - 8*j))
	}
	return netip.PrefixFrom(netip.AddrFrom16(at), 48)
}

// newHolder is what comes with a new member of the network: an AS number, a block
// of each family, some parts of them, and routes.
func (g *generator) newHolder() []Edit {
	i := g.blocks
	g.blocks++
	mnt := g.maintainer(i)
	asn := 4200000000 + i
	edits := []Edit{{Op: "put", Class: "aut-num", Key: fmt.Sprintf("AS%d", asn), Text: fmt.Sprintf(
		"aut-num:            AS%d\nas-name:            AS-%08X\nmnt-by:             %s\nsource:             TEST\n", asn, i*7919, mnt)}}
	for _, block := range []netip.Prefix{block4(i), block6(i)} {
		if g.chance(30) {
			continue
		}
		edits = append(edits, g.network(block, mnt), g.route(block, mnt, asn))
		if g.chance(25) {
			edits = append(edits, g.network(g.part(block), mnt))
		}
		if g.chance(10) { // a route without a network of its own
			edits = append(edits, g.route(g.part(block), g.maintainer(-1), asn))
		}
	}
	if g.chance(5) { // a range that is not one CIDR, in space that nothing else uses
		first := block4(g.blocks).Addr()
		g.blocks++
		edits = append(edits, g.network2(first, mnt))
	}
	return edits
}

// part is a random prefix inside a block.
func (g *generator) part(block netip.Prefix) netip.Prefix {
	lengths := []int{25, 26, 27, 28, 29, 32}
	if block.Addr().Is6() {
		lengths = []int{52, 56, 60, 64, 112, 127, 128}
	}
	bits := lengths[g.rand.IntN(len(lengths))]
	at := block.Addr().AsSlice()
	at[block.Bits()/8] |= byte(g.rand.IntN(256))
	a, _ := netip.AddrFromSlice(at)
	return netip.PrefixFrom(a, bits).Masked()
}

// maintainer is that of a holder, or of a random one.
func (g *generator) maintainer(holder int) string {
	if holder < 0 || g.chance(5) {
		holder = g.rand.IntN(g.holders)
	}
	return fmt.Sprintf("M%08X-MNT", uint32(holder)*2654435761)
}

func (g *generator) network(p netip.Prefix, mnt string) Edit {
	statuses := []string{"ASSIGNED", "ASSIGNED", "ASSIGNED", "ASSIGNED PI", "ALLOCATED", "ALLOCATED PA", ""}
	var servers, ds []string
	if g.chance(65) {
		for i := range 1 + g.rand.IntN(3) {
			servers = append(servers, fmt.Sprintf("ns%d.n%06x.example", i+1, g.rand.IntN(g.holders)))
		}
		if g.chance(5) {
			servers = append(servers, servers[0]) // some owners write one twice
		}
		if g.chance(5) {
			ds = append(ds, g.ds())
		}
	}
	return put(networkClass(p), p, networkText(p, mnt, statuses[g.rand.IntN(len(statuses))], servers, ds))
}

// network2 is a range of 192 addresses: a /25 and a /26.
func (g *generator) network2(first netip.Addr, mnt string) Edit {
	at := first.As4()
	at[3] = 191
	span := fmt.Sprintf("%s - %s", first, netip.AddrFrom4(at))
	return Edit{Op: "put", Class: "inetnum", Key: span, Text: fmt.Sprintf(
		"inetnum:            %s\nnetname:            NET-%08X\nmnt-by:             %s\nstatus:             ASSIGNED\nsource:             TEST\n",
		span, g.rand.Uint32(), mnt)}
}

func (g *generator) ds() string {
	size, kind := 32, 2
	if g.chance(20) {
		size, kind = 20, 1
	}
	digest := make([]byte, size)
	for i := range digest {
		digest[i] = byte(g.rand.Uint32())
	}
	text := fmt.Sprintf("%x", digest)
	if g.chance(30) { // as dig prints it
		text = strings.ToUpper(text[:len(text)-8] + " " + text[len(text)-8:])
	}
	return fmt.Sprintf("%d %d %d %s", g.rand.IntN(65536), 8+g.rand.IntN(8), kind, text)
}

func (g *generator) route(p netip.Prefix, mnt string, asn int) Edit {
	if g.chance(1) {
		asn = 0
	}
	origins := []int{asn}
	for g.chance(8) && len(origins) < 4 {
		origins = append(origins, 4200000000+g.rand.IntN(g.blocks+1))
	}
	class := "route"
	if p.Addr().Is6() {
		class = "route6"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s%s\n", class+":", p)
	if g.chance(20) {
		fmt.Fprintf(&b, "max-length:         %d\n", p.Bits()+g.rand.IntN(p.Addr().BitLen()-p.Bits()+1))
	}
	for _, o := range origins {
		fmt.Fprintf(&b, "origin:             AS%d\n", o)
	}
	if !g.chance(3) {
		fmt.Fprintf(&b, "mnt-by:             %s\n", mnt)
	}
	b.WriteString("source:             TEST\n")
	return put(class, p, b.String())
}

func put(class string, p netip.Prefix, text string) Edit {
	return Edit{Op: "put", Class: class, Key: strings.ReplaceAll(p.String(), "/", "_"), Text: text}
}

func networkClass(p netip.Prefix) string {
	if p.Addr().Is6() {
		return "inet6num"
	}
	return "inetnum"
}

// networkText writes a network as dn42 does: the range in full, then the CIDR.
func networkText(p netip.Prefix, mnt, status string, servers, ds []string) string {
	last := p.Addr().AsSlice()
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	to, _ := netip.AddrFromSlice(last)
	var b strings.Builder
	fmt.Fprintf(&b, "%-20s%s - %s\n", networkClass(p)+":", p.Addr().StringExpanded(), to.StringExpanded())
	fmt.Fprintf(&b, "cidr:               %s\n", p)
	fmt.Fprintf(&b, "netname:            NET-%s\n", strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String()))
	for _, s := range servers {
		fmt.Fprintf(&b, "nserver:            %s\n", s)
	}
	for _, d := range ds {
		fmt.Fprintf(&b, "ds-rdata:           %s\n", d)
	}
	if status != "" {
		fmt.Fprintf(&b, "status:             %s\n", status)
	}
	fmt.Fprintf(&b, "mnt-by:             %s\nsource:             TEST\n", mnt)
	return b.String()
}
