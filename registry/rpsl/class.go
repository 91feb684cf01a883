package rpsl

import (
	"net/netip"
	"strings"
)

// Class is the class of an RPSL object: the name of its first attribute.
type Class string

// The classes that HubN takes: address space and routes of both families, and
// the holders of AS numbers.
const (
	ClassInetnum  Class = "inetnum"
	ClassInet6num Class = "inet6num"
	ClassRoute    Class = "route"
	ClassRoute6   Class = "route6"
	ClassAutNum   Class = "aut-num"
)

// Taken tells whether HubN takes objects of the class.
func (c Class) Taken() bool {
	switch c {
	case ClassInetnum, ClassInet6num, ClassRoute, ClassRoute6, ClassAutNum:
		return true
	}
	return false
}

// Known tells whether the class is one that registries use, taken or not. What
// does not begin with one of them is not RPSL.
func (c Class) Known() bool { return c.Taken() || otherClasses[c] }

// holds tells whether an address of the class's family is a.
func (c Class) holds(a netip.Addr) bool {
	switch c {
	case ClassInetnum, ClassRoute:
		return a.Is4()
	case ClassInet6num, ClassRoute6:
		return a.Is6()
	}
	return false
}

// sibling is the class for the same thing in the other address family.
func (c Class) sibling() Class {
	switch c {
	case ClassInetnum:
		return ClassInet6num
	case ClassInet6num:
		return ClassInetnum
	case ClassRoute:
		return ClassRoute6
	case ClassRoute6:
		return ClassRoute
	}
	return c
}

// networkClass and routeClass are the classes that speak of a prefix.
func networkClass(p netip.Prefix) Class {
	if p.Addr().Is4() {
		return ClassInetnum
	}
	return ClassInet6num
}

func routeClass(p netip.Prefix) Class {
	if p.Addr().Is4() {
		return ClassRoute
	}
	return ClassRoute6
}

// otherClasses are the classes of RFC 2622, RFC 4012, RFC 2725, of the regional
// registries and of dn42 that say nothing that the Registry keeps.
var otherClasses = func() map[Class]bool {
	names := strings.Fields(`
		as-block as-set dictionary dns domain filter-set inet-rtr irt key-cert limerick
		mntner namespace organisation person peering-set poem poetic-form registry
		repository role route-set rtr-set schema tinc-key tinc-keyset`)
	set := make(map[Class]bool, len(names))
	for _, n := range names {
		set[Class(n)] = true
	}
	return set
}()
