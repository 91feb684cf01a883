package rpsltest

import (
	"fmt"
	"net/netip"
	"strings"
)

// change is what happens to a registry in one merge.
func (g *generator) change() []Edit {
	if g.chance(40) {
		return g.newHolder()
	}
	o := g.objects[g.rand.IntN(len(g.objects))]
	p, err := netip.ParsePrefix(strings.ReplaceAll(o.Key, "_", "/"))
	if err != nil { // an AS number, or a range that is not one CIDR
		return []Edit{g.delete(o)}
	}
	if g.chance(15) {
		return g.deleteBoth(p)
	}
	if g.chance(25) {
		return []Edit{g.delete(o)} // of a network in the middle, or before its route
	}
	return []Edit{g.replacement(o, p)}
}

// replacement is an object with the same key and new content, or a network
// between the object and what is around it.
func (g *generator) replacement(o Object, p netip.Prefix) Edit {
	mnt := g.maintainer(-1)
	switch {
	case g.chance(20) && p.Bits() > 8:
		between := p.Bits() - 1 - g.rand.IntN(4)
		return g.network(netip.PrefixFrom(p.Addr(), between).Masked(), mnt)
	case strings.HasPrefix(o.Class, "route"):
		return g.route(p, mnt, 4200000000+g.rand.IntN(g.blocks+1))
	}
	return g.network(p, mnt)
}

func (g *generator) delete(o Object) Edit { return Edit{Op: "delete", Class: o.Class, Key: o.Key} }

// deleteBoth removes a prefix's network and its route.
func (g *generator) deleteBoth(p netip.Prefix) []Edit {
	route := "route"
	if p.Addr().Is6() {
		route = "route6"
	}
	key := strings.ReplaceAll(p.String(), "/", "_")
	return []Edit{
		{Op: "delete", Class: networkClass(p), Key: key},
		{Op: "delete", Class: route, Key: key},
	}
}

// mistakes are n objects, each with one of the mistakes that people make.
func (g *generator) mistakes(n int) []Object {
	mistakes := make([]Object, 0, n)
	for i := range n {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 5), byte(i << 3)}), 29)
		network := func(lines string) Object {
			return Object{Class: "inetnum", Key: strings.ReplaceAll(p.String(), "/", "_"),
				Text: fmt.Sprintf("inetnum:            %s\n%smnt-by:             M-MNT\n", p, lines)}
		}
		route := func(text, lines string) Object {
			return Object{Class: "route", Key: strings.ReplaceAll(text, "/", "_"),
				Text: fmt.Sprintf("route:              %s\n%smnt-by:             M-MNT\n", text, lines)}
		}
		switch i % 7 {
		case 0:
			mistakes = append(mistakes, network("nserver: ns1.n0.example\nds-rdata: 1 8 2 0123456789abcdef\n"))
		case 1:
			mistakes = append(mistakes, network("cidr: 192.168.0.0/16\n"))
		case 2:
			mistakes = append(mistakes, network("nserver: 192.0.2.1\n"))
		case 3:
			mistakes = append(mistakes, route(p.Addr().Next().String()+"/29", "origin: AS4200000000\n"))
		case 4:
			mistakes = append(mistakes, route(p.String(), "origin: AS4200000000\nmax-length: 24\n"))
		case 5:
			mistakes = append(mistakes, route(p.String(), "origin: AS4294967296\n"))
		case 6:
			mistakes = append(mistakes, route(p.String(), ""))
		}
	}
	return mistakes
}
