// Package rdap writes what the Registry holds as the answers of the Registration
// Data Access Protocol (RFC 9083) and of whois (RFC 3912): rows in, documents out.
// It asks no database and answers no request: package registry does both.
//
// The answers use the extensions cidr0 (networks in CIDR notation), arin_originas0
// (who may originate a network's routes) and redacted (RFC 9537: what is left out
// for callers who may not see it).
package rdap

import (
	"encoding/json"
	"fmt"
	"time"
)

// ContentType is the media type of every answer (RFC 7480 section 4.2).
const ContentType = "application/rdap+json"

// The identifiers of what an answer is written by (RFC 9083 section 4.1).
const (
	levelZero         = "rdap_level_0"
	extensionCIDR     = "cidr0"
	extensionOrigins  = "arin_originas0"
	extensionRedacted = "redacted"
)

// The classes of objects (RFC 9083 section 5).
const (
	ClassNetwork    = "ip network"
	ClassAutnum     = "autnum"
	ClassEntity     = "entity"
	ClassDomain     = "domain"
	ClassNameserver = "nameserver"
)

// Top holds the members that only the topmost object of an answer has.
type Top struct {
	Conformance []string    `json:"rdapConformance,omitempty"`
	Notices     []Notice    `json:"notices,omitempty"`
	Redacted    []Redaction `json:"redacted,omitempty"`
}

// Notice says something of the whole answer, or as a remark of one object (RFC
// 9083 section 4.3).
type Notice struct {
	Title       string   `json:"title,omitempty"`
	Type        string   `json:"type,omitempty"`
	Description []string `json:"description"`
	Links       []Link   `json:"links,omitempty"`
}

// Link leads to something else (RFC 9083 section 4.2).
type Link struct {
	Value string `json:"value"`
	Rel   string `json:"rel"`
	Href  string `json:"href"`
	Type  string `json:"type,omitempty"`
}

// Event is something that happened to an object (RFC 9083 section 4.5).
type Event struct {
	Action string    `json:"eventAction"`
	Date   time.Time `json:"eventDate"`
}

// Redaction says what was left out of an answer (RFC 9537 section 4).
type Redaction struct {
	Name     Description `json:"name"`
	PrePath  string      `json:"prePath"`
	PathLang string      `json:"pathLang"`
	Method   string      `json:"method"`
	Reason   Description `json:"reason"`
}

// Description is text without a registered type.
type Description struct {
	Description string `json:"description"`
}

// Network is an IP network (RFC 9083 section 5.4).
type Network struct {
	Top
	Class        string   `json:"objectClassName"`
	Handle       string   `json:"handle"`
	StartAddress string   `json:"startAddress"`
	EndAddress   string   `json:"endAddress"`
	IPVersion    string   `json:"ipVersion"`
	Name         string   `json:"name,omitempty"`
	Type         string   `json:"type"`
	ParentHandle string   `json:"parentHandle,omitempty"`
	Status       []string `json:"status"`
	CIDRs        []CIDR   `json:"cidr0_cidrs"`
	Origins      []uint32 `json:"arin_originas0_originautnums,omitempty"`
	Entities     []Entity `json:"entities,omitempty"`
	Remarks      []Notice `json:"remarks,omitempty"`
	Events       []Event  `json:"events"`
	Links        []Link   `json:"links"`
}

// CIDR is a network in CIDR notation, in one of the two families.
type CIDR struct {
	V4     string `json:"v4prefix,omitempty"`
	V6     string `json:"v6prefix,omitempty"`
	Length int    `json:"length"`
}

func (c CIDR) String() string { return fmt.Sprintf("%s%s/%d", c.V4, c.V6, c.Length) }

// Autnum is an AS number (RFC 9083 section 5.5).
type Autnum struct {
	Top
	Class    string   `json:"objectClassName"`
	Handle   string   `json:"handle"`
	Start    uint32   `json:"startAutnum"`
	End      uint32   `json:"endAutnum"`
	Name     string   `json:"name,omitempty"`
	Status   []string `json:"status"`
	Entities []Entity `json:"entities,omitempty"`
	Events   []Event  `json:"events"`
	Links    []Link   `json:"links"`
}

// Entity is who holds something (RFC 9083 section 5.1).
type Entity struct {
	Top
	Class    string    `json:"objectClassName"`
	Handle   string    `json:"handle"`
	VCard    VCard     `json:"vcardArray"`
	Roles    []string  `json:"roles,omitempty"`
	Status   []string  `json:"status,omitempty"`
	Networks []Network `json:"networks,omitempty"`
	Autnums  []Autnum  `json:"autnums,omitempty"`
	Remarks  []Notice  `json:"remarks,omitempty"`
	Events   []Event   `json:"events"`
	Links    []Link    `json:"links"`
}

// Domain is a reverse zone (RFC 9083 section 5.3).
type Domain struct {
	Top
	Class       string       `json:"objectClassName"`
	Handle      string       `json:"handle"`
	LDHName     string       `json:"ldhName"`
	Nameservers []Nameserver `json:"nameservers,omitempty"`
	SecureDNS   SecureDNS    `json:"secureDNS"`
	Network     *Network     `json:"network,omitempty"`
	Entities    []Entity     `json:"entities,omitempty"`
	Status      []string     `json:"status"`
	Events      []Event      `json:"events"`
	Links       []Link       `json:"links"`
}

// SecureDNS says how a delegation is signed.
type SecureDNS struct {
	DelegationSigned bool `json:"delegationSigned"`
	DS               []DS `json:"dsData,omitempty"`
}

// DS is a delegation signer record (RFC 4034 section 5); the digest is hexadecimal.
type DS struct {
	KeyTag     uint16 `json:"keyTag"`
	Algorithm  uint8  `json:"algorithm"`
	Digest     string `json:"digest"`
	DigestType uint8  `json:"digestType"`
}

// Nameserver is a name server of reverse zones (RFC 9083 section 5.2).
type Nameserver struct {
	Top
	Class       string   `json:"objectClassName"`
	LDHName     string   `json:"ldhName"`
	UnicodeName string   `json:"unicodeName,omitempty"`
	Status      []string `json:"status,omitempty"`
	Links       []Link   `json:"links"`
}

// Help is the answer to /help (RFC 9083 section 7).
type Help struct{ Top }

// Error is the answer where there is nothing else (RFC 9083 section 6).
type Error struct {
	Top
	Code        int      `json:"errorCode"`
	Title       string   `json:"title"`
	Description []string `json:"description"`
}

// Entities answers a search for entities (RFC 9083 section 8).
type Entities struct {
	Top
	Results []Entity `json:"entitySearchResults"`
}

// Domains answers a search for domains.
type Domains struct {
	Top
	Results []Domain `json:"domainSearchResults"`
}

// Nameservers answers a search for name servers.
type Nameservers struct {
	Top
	Results []Nameserver `json:"nameserverSearchResults"`
}

// Decode reads an answer that holds one object.
func Decode(document []byte) (any, error) {
	var class struct {
		Name string `json:"objectClassName"`
	}
	if err := json.Unmarshal(document, &class); err != nil {
		return nil, err
	}
	var object any
	switch class.Name {
	case ClassNetwork:
		object = new(Network)
	case ClassAutnum:
		object = new(Autnum)
	case ClassEntity:
		object = new(Entity)
	case ClassDomain:
		object = new(Domain)
	case ClassNameserver:
		object = new(Nameserver)
	default:
		return nil, fmt.Errorf("the answer holds an object of class %q, not a network, AS number, entity, domain or name server", class.Name)
	}
	return object, json.Unmarshal(document, object)
}
