// Package client is the typed HTTP client of the Registry and the wire types of
// its API: all that other modules may import from the Registry.
package client

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Kind is an aggregate type: the first half of a resource's name.
type Kind string

// The aggregate types (DESIGN: words).
const (
	KindOrganisation Kind = "organisation"
	KindASN          Kind = "asn"
	KindPrefix       Kind = "prefix"
	KindPTR          Kind = "ptr"
	KindAnycast      Kind = "anycast"
	KindCA           Kind = "ca"
	KindSession      Kind = "session"
	KindNameServers  Kind = "nsset"
	KindCommand      Kind = "command"
	KindBarrier      Kind = "barrier"
)

// SourceKinds are the aggregate types that can be fetched and scanned as sources.
var SourceKinds = []Kind{KindOrganisation, KindASN, KindPrefix, KindPTR, KindAnycast, KindCA, KindSession, KindNameServers}

// Resource names one aggregate: "prefix:17", "ptr:2001:db8::1", "asn:64496".
type Resource struct {
	Kind Kind
	Key  string
}

func (r Resource) String() string { return string(r.Kind) + ":" + r.Key }

// ParseResource reads "kind:key".
func ParseResource(s string) (Resource, error) {
	kind, key, ok := strings.Cut(s, ":")
	if !ok || kind == "" || key == "" {
		return Resource{}, fmt.Errorf("%q is not a resource: write kind:key, such as prefix:17 or asn:64496", s)
	}
	return Resource{Kind(kind), key}, nil
}

// MarshalText is "kind:key".
func (r Resource) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "kind:key".
func (r *Resource) UnmarshalText(b []byte) (err error) {
	*r, err = ParseResource(string(b))
	return err
}

// ASN is an autonomous system number, written "AS64496" in text and as a number in JSON.
type ASN uint32

func (a ASN) String() string { return "AS" + strconv.FormatUint(uint64(a), 10) }

// ParseASN reads "64496", "AS64496" (any case) or "AS1.10" (RFC 5396 asdot).
func ParseASN(s string) (ASN, error) {
	t := s
	if len(t) > 2 && strings.EqualFold(t[:2], "AS") {
		t = t[2:]
	}
	if hi, lo, dotted := strings.Cut(t, "."); dotted {
		h, errH := strconv.ParseUint(hi, 10, 16)
		l, errL := strconv.ParseUint(lo, 10, 16)
		if errH == nil && errL == nil {
			return ASN(h<<16 | l), nil
		}
	} else if n, err := strconv.ParseUint(t, 10, 32); err == nil {
		return ASN(n), nil
	}
	return 0, fmt.Errorf("%q is not an AS number: write 0 to 4294967295, with or without AS in front", s)
}

// Organisation holds resources.
type Organisation struct {
	ID      int64  `json:"id"`
	Handle  string `json:"handle"`
	Name    string `json:"name"`
	Contact string `json:"contact"`
	// ContactHidden says that the contact is left out: the caller may not see it.
	ContactHidden bool  `json:"contact_hidden,omitempty"`
	Revision      int64 `json:"revision"`
}

// ASNHolder is an autonomous system number and who holds it.
type ASNHolder struct {
	Number         ASN    `json:"number"`
	OrganisationID int64  `json:"organisation_id,omitempty"`
	Organisation   string `json:"organisation,omitempty"` // its handle
	Name           string `json:"name"`
	// Special is "reserved", "private" or "documentation" (RFC 7607, 5398, 6996, 7300), else empty.
	Special  string `json:"special,omitempty"`
	Revision int64  `json:"revision"`
}

// Routing are the routing settings of a prefix.
type Routing struct {
	Announced bool `json:"announced"`
	// Origin is nil when none is set; AS0 means that nobody may originate the
	// prefix (RFC 6483 section 4).
	Origin *ASN `json:"origin,omitempty"`
	// MaxLength is nil when it is not stated; then it is the prefix's own length.
	MaxLength *int `json:"max_length,omitempty"`
}

// ReverseMode says who serves the reverse zone of a prefix.
type ReverseMode string

// The reverse modes.
const (
	ReverseInherit   ReverseMode = "inherit"
	ReverseOff       ReverseMode = "off"
	ReverseHosted    ReverseMode = "hosted"
	ReverseDelegated ReverseMode = "delegated"
)

// DS is a delegation signer record (RFC 4034 section 5). Zone is empty where it
// holds for the one zone of the prefix.
type DS struct {
	Zone       string `json:"zone,omitempty"`
	KeyTag     uint16 `json:"key_tag"`
	Algorithm  uint8  `json:"algorithm"`
	DigestType uint8  `json:"digest_type"`
	Digest     string `json:"digest"` // lower-case hexadecimal
}

// Reverse are the reverse-DNS settings of a prefix.
type Reverse struct {
	Mode            ReverseMode `json:"mode"`
	NameServers     []string    `json:"name_servers"`
	NameServerSetID int64       `json:"name_server_set_id,omitempty"`
	DS              []DS        `json:"ds"`
	RFC2317Style    string      `json:"rfc2317_style,omitempty"` // dash, slash or first
	ZoneCut         *int        `json:"zone_cut,omitempty"`
}

// Prefix is an allocation with its routing and reverse-DNS settings.
type Prefix struct {
	ID             int64        `json:"id"`
	Prefix         netip.Prefix `json:"prefix"`
	ParentID       int64        `json:"parent_id,omitempty"`
	OrganisationID int64        `json:"organisation_id,omitempty"`
	Organisation   string       `json:"organisation,omitempty"` // its handle
	Kind           string       `json:"kind"`                   // container, allocation, assignment, reserved
	Status         string       `json:"status"`                 // planned, active, retired
	Provenance     string       `json:"provenance"`             // registered, or implied by a route
	Name           string       `json:"name"`
	Routing        Routing      `json:"routing"`
	Reverse        Reverse      `json:"reverse"`
	Revision       int64        `json:"revision"`
}

// PTRRecord is one PTR record of an address.
type PTRRecord struct {
	ID          int64      `json:"id"`
	Address     netip.Addr `json:"address"`
	Target      string     `json:"target"`       // A-labels, lower case, no final dot
	TargetTyped string     `json:"target_typed"` // as it was typed
	TTL         *int       `json:"ttl,omitempty"`
	Revision    int64      `json:"revision"`
}

// RouteOrigin is one route origin of an anycast allocation.
type RouteOrigin struct {
	ID        int64 `json:"id"`
	ASN       ASN   `json:"asn"`
	MaxLength *int  `json:"max_length,omitempty"`
	Active    bool  `json:"active"`
	Revision  int64 `json:"revision"`
}

// Anycast is an anycast allocation with all its route origins.
type Anycast struct {
	ID             int64         `json:"id"`
	Prefix         netip.Prefix  `json:"prefix"`
	ContainerID    int64         `json:"container_id"`
	OrganisationID int64         `json:"organisation_id,omitempty"`
	Organisation   string        `json:"organisation,omitempty"`
	Service        string        `json:"service"`
	Origins        []RouteOrigin `json:"origins"`
	Revision       int64         `json:"revision"`
}

// The bodies of sources below hold only columns of their own aggregate, so that
// a version says all about them.

// PrefixSource is the body of a source of kind prefix.
type PrefixSource struct {
	Prefix         netip.Prefix `json:"prefix"`
	OrganisationID int64        `json:"organisation_id,omitempty"`
	Status         string       `json:"status"`
	Routing        Routing      `json:"routing"`
	Reverse        Reverse      `json:"reverse"`
}

// PTRSource is the body of a source of kind ptr: all PTR records of one address.
type PTRSource struct {
	Address netip.Addr  `json:"address"`
	Records []PTRTarget `json:"records"` // ordered by target; never empty
}

// PTRTarget is one record of a PTRSource.
type PTRTarget struct {
	Target string `json:"target"`
	TTL    *int   `json:"ttl,omitempty"`
}

// AnycastSource is the body of a source of kind anycast.
type AnycastSource struct {
	Prefix         netip.Prefix   `json:"prefix"`
	OrganisationID int64          `json:"organisation_id,omitempty"`
	Service        string         `json:"service"`
	Origins        []OriginSource `json:"origins"` // ordered by ASN, then max_length
}

// OriginSource is one route origin of an AnycastSource.
type OriginSource struct {
	ASN       ASN  `json:"asn"`
	MaxLength *int `json:"max_length,omitempty"`
	Active    bool `json:"active"`
}

// ASNSource is the body of a source of kind asn.
type ASNSource struct {
	Number         ASN   `json:"number"`
	OrganisationID int64 `json:"organisation_id,omitempty"`
}

// OrganisationSource is the body of a source of kind organisation.
type OrganisationSource struct {
	ID      int64  `json:"id"`
	Handle  string `json:"handle"`
	Name    string `json:"name"`
	Contact string `json:"contact"`
}

// NameServersSource is the body of a source of kind nsset.
type NameServersSource struct {
	ID      int64    `json:"id"`
	Name    string   `json:"name"`
	Servers []string `json:"servers"`
}

// CASource is the body of a source of kind ca: a certificate authority with its
// certificates and revocations.
type CASource struct {
	ID             int64               `json:"id"`
	Name           string              `json:"name"`
	ParentID       int64               `json:"parent_id,omitempty"`
	OrganisationID int64               `json:"organisation_id,omitempty"`
	Mode           string              `json:"mode"` // hosted, delegated
	CSR            []byte              `json:"csr,omitempty"`
	Resources      string              `json:"resources"` // organisation, explicit
	Prefixes       []netip.Prefix      `json:"prefixes"`
	ASNs           []ASNRange          `json:"asns"`
	State          string              `json:"state"` // active, retired
	Certificates   []CertificateSource `json:"certificates"`
}

// ASNRange is an inclusive range of AS numbers.
type ASNRange struct {
	First ASN `json:"first"`
	Last  ASN `json:"last"`
}

// CertificateSource is one certificate of a CASource.
type CertificateSource struct {
	ID         int64             `json:"id"`
	Profile    string            `json:"profile"` // child-ca, bgpsec-router
	CSR        []byte            `json:"csr"`
	Prefixes   []netip.Prefix    `json:"prefixes"`
	ASNs       []ASNRange        `json:"asns"`
	NotBefore  time.Time         `json:"not_before"`
	NotAfter   time.Time         `json:"not_after"`
	Revocation *RevocationSource `json:"revocation,omitempty"`
}

// RevocationSource says when and why a certificate was revoked.
type RevocationSource struct {
	Reason    string    `json:"reason"`
	RevokedAt time.Time `json:"revoked_at"`
}

// SessionSource is the body of a source of kind session. The password is never
// part of it; PasswordSet says that there is one.
type SessionSource struct {
	ID            int64      `json:"id"`
	Collector     string     `json:"collector"`
	LocalASN      ASN        `json:"local_asn,omitempty"`
	LocalAddress  netip.Addr `json:"local_address,omitzero"`
	RemoteASN     ASN        `json:"remote_asn"`
	RemoteAddress netip.Addr `json:"remote_address"`
	Families      []string   `json:"families"`
	PasswordSet   bool       `json:"password_set"`
	MaxPrefixes   int        `json:"max_prefixes,omitempty"`
	Wanted        string     `json:"wanted"` // up, down
}

// SourceState says whether a source is there.
type SourceState string

// The states of a source that the Registry itself states.
const (
	SourcePresent   SourceState = "present"
	SourceDeleted   SourceState = "deleted"   // a tombstone: the last version is the deletion's
	SourceForgotten SourceState = "forgotten" // the Registry does not know it
)

// Source is one aggregate as the Registry states it: its state and its version
// were read in one snapshot.
type Source struct {
	Resource Resource        `json:"resource"`
	State    SourceState     `json:"state"`
	Version  int64           `json:"version,omitempty"`
	Changed  time.Time       `json:"changed,omitzero"` // when the version was made, by the database's clock
	Body     json.RawMessage `json:"body,omitempty"`   // the XxxSource of its kind, when present
}

// SourceKeys is the body of POST /v1/sources/{kind}:get: up to MaxBatch keys.
type SourceKeys struct {
	Keys []string `json:"keys" minItems:"1" maxItems:"500"`
}

// SourceAnswer answers GET /v1/sources/{kind}/{key}, when the source is present.
// A tombstone is a problem document of kind deleted with the members lineage,
// resource, version, changed and read_at; a source that the Registry does not
// know is one of kind not-found with lineage, resource and read_at.
type SourceAnswer struct {
	Lineage string    `json:"lineage"`
	ReadAt  time.Time `json:"read_at"` // by the database's clock
	Source
}

// SourceBatch answers POST /v1/sources/{kind}:get: one Source for each id asked for, in that order.
type SourceBatch struct {
	Lineage string    `json:"lineage"`
	ReadAt  time.Time `json:"read_at"` // by the database's clock
	Items   []Source  `json:"items"`
}

// SourcePage is one page of GET /v1/sources/{kind}, ordered by the immutable id.
type SourcePage struct {
	Lineage string    `json:"lineage"`
	Token   string    `json:"token"`   // of the snapshot in which this page was read
	ReadAt  time.Time `json:"read_at"` // by the database's clock
	Items   []Source  `json:"items"`
	// Next continues after this page; empty when Complete.
	Next     string `json:"next,omitempty"`
	Complete bool   `json:"complete"`
	// Changed lists the keys of this kind that were committed since the
	// snapshot of the token that the request carried as "since". It is bounded;
	// TooMany says that the bound was passed and the list is cut.
	Changed []string `json:"changed,omitempty"`
	TooMany bool     `json:"too_many,omitempty"`
}

// SourceID is one line of GET /v1/sources/{kind}/ids.
type SourceID struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`
}

// SourceIDsHead is the first line of GET /v1/sources/{kind}/ids (NDJSON).
type SourceIDsHead struct {
	Lineage string    `json:"lineage"`
	Token   string    `json:"token"`
	ReadAt  time.Time `json:"read_at"`           // by the database's clock
	Changed []string  `json:"changed,omitempty"` // since the token in the request's "since"
	TooMany bool      `json:"too_many,omitempty"`
}

// SourceIDsTail is the last line of GET /v1/sources/{kind}/ids; a stream that
// ends without it is broken.
type SourceIDsTail struct {
	Complete bool  `json:"complete"`
	Count    int64 `json:"count"`
}

// Tuple is a route origin: who may originate what, up to which length. It is
// written "AS64496,192.0.2.0/24,24".
type Tuple struct {
	ASN       ASN          `json:"asn"`
	Prefix    netip.Prefix `json:"prefix"`
	MaxLength int          `json:"max_length"` // always given
}

func (t Tuple) String() string {
	return t.ASN.String() + "," + t.Prefix.String() + "," + strconv.Itoa(t.MaxLength)
}

// TupleSources answers GET /v1/sources?tuple=: the active sources of a tuple.
type TupleSources struct {
	Lineage string        `json:"lineage"`
	Tuple   Tuple         `json:"tuple"`
	Items   []TupleSource `json:"items"`
}

// TupleSource is one active source of a tuple.
type TupleSource struct {
	Resource Resource `json:"resource"`
	Version  int64    `json:"version"`
}

// Lineage is one history of the Registry.
type Lineage struct {
	ID        string    `json:"id"`
	Parent    string    `json:"parent,omitempty"`
	Reason    string    `json:"reason"`
	CreatedAt time.Time `json:"created_at"`
}

// Lineages answers GET /v1/lineage: the current one first, then its ancestors.
type Lineages struct {
	Lineage  string    `json:"lineage"`
	Ancestry []Lineage `json:"ancestry"`
}

// Regression is what a consumer posts to /v1/lineage/regressions: it holds a
// version that the Registry no longer reaches, so the Registry's history went
// back. The Registry checks it and starts a new lineage if it is so.
type Regression struct {
	Module   string   `json:"module"`
	Lineage  string   `json:"lineage"`
	Resource Resource `json:"resource"`
	Version  int64    `json:"version"`
}

// ReportState is what a module says of a resource.
type ReportState string

// The report states.
const (
	ReportApplied   ReportState = "applied"
	ReportFailed    ReportState = "failed"
	ReportWithdrawn ReportState = "withdrawn"
	ReportHeld      ReportState = "held"
)

// ReportItem is what a module says of one resource.
type ReportItem struct {
	Resource  Resource        `json:"resource"`
	Version   int64           `json:"version"`
	State     ReportState     `json:"state"`
	Reason    string          `json:"reason,omitempty"`
	RetryAt   time.Time       `json:"retry_at,omitzero"`
	FetchedAt time.Time       `json:"fetched_at"`
	Detail    json.RawMessage `json:"detail,omitempty"`
}

// Report is the body of POST /v1/reports: up to 1,000 items of one module.
type Report struct {
	Module   string       `json:"module"`
	Instance string       `json:"instance"`
	Lineage  string       `json:"lineage"`
	Items    []ReportItem `json:"items"`
}

// ReportResult says how many items were stored, and how many were older than
// what was stored before and so ignored.
type ReportResult struct {
	Stored  int `json:"stored"`
	Ignored int `json:"ignored"`
}

// Heartbeat is the body of PUT /v1/modules/{name}/instances/{instance}. The
// first one registers the module.
type Heartbeat struct {
	Kinds           []Kind          `json:"kinds"`
	Address         string          `json:"address,omitempty"` // base URL of the module's own HTTP
	Lineage         string          `json:"lineage,omitempty"`
	Behind          int64           `json:"behind"`
	StartedAt       time.Time       `json:"started_at"`
	IntervalSeconds int             `json:"interval_seconds"`
	Status          json.RawMessage `json:"status,omitempty"`
}

// Module is a registered module and its instances.
type Module struct {
	Name         string           `json:"name"`
	Kinds        []Kind           `json:"kinds"`
	RegisteredAt time.Time        `json:"registered_at"`
	Stale        bool             `json:"stale"` // no instance heard of for three intervals
	Instances    []ModuleInstance `json:"instances"`
}

// ModuleInstance is one running instance of a module.
type ModuleInstance struct {
	Instance  string          `json:"instance"`
	Address   string          `json:"address,omitempty"`
	Lineage   string          `json:"lineage,omitempty"`
	Behind    int64           `json:"behind"`
	StartedAt time.Time       `json:"started_at"`
	SeenAt    time.Time       `json:"seen_at"`
	Stale     bool            `json:"stale"`
	Status    json.RawMessage `json:"status,omitempty"`
}

// Command is an order to a module, carried as an event command:<id>.
type Command struct {
	ID        int64           `json:"id"`
	Module    string          `json:"module"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Actor     string          `json:"actor,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	CreatedAt time.Time       `json:"created_at,omitzero"`
	Version   int64           `json:"version,omitempty"`
	// Answer is the module's last report on the command.
	Answer *AppliedState `json:"answer,omitempty"`
}

// Barrier says how far a barrier is: first the lanes before it are published,
// then its event is published on every stream, then every registered module
// reports it on every stream.
type Barrier struct {
	ID      int64           `json:"id"`
	Lineage string          `json:"lineage"`
	Ahead   int64           `json:"ahead"`  // lanes still unpublished before it
	Raised  bool            `json:"raised"` // its events are in the outbox
	Done    bool            `json:"done"`
	Modules []BarrierModule `json:"modules"`
	// Superseded is the current lineage where it is no longer the barrier's: the
	// barrier will never be done, make another.
	Superseded string `json:"superseded,omitempty"`
}

// BarrierModule is one module's way through a barrier.
type BarrierModule struct {
	Module  string `json:"module"`
	Done    bool   `json:"done"`
	Stale   bool   `json:"stale"`
	Missing int    `json:"missing"` // streams on which it has not reported the barrier
	Reason  string `json:"reason,omitempty"`
}

// Lease answers PUT /v1/leases/{name}.
type Lease struct {
	Name      string    `json:"name"`
	Holder    string    `json:"holder"`
	Token     int64     `json:"token"` // fencing token; grows with every change of holder
	ExpiresAt time.Time `json:"expires_at"`
	Held      bool      `json:"held"` // whether the caller holds it
}

// Overall is the one word for a resource.
type Overall string

// The overall words, worst last.
const (
	OverallApplied  Overall = "applied"
	OverallPending  Overall = "pending"
	OverallStale    Overall = "stale"
	OverallHeld     Overall = "held"
	OverallDiverged Overall = "diverged"
	OverallFailed   Overall = "failed"
)

// AppliedState is what one module last reported of a resource.
type AppliedState struct {
	Module     string          `json:"module"`
	Version    int64           `json:"version"`
	State      ReportState     `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	RetryAt    time.Time       `json:"retry_at,omitzero"`
	FetchedAt  time.Time       `json:"fetched_at"`
	ReportedAt time.Time       `json:"reported_at"`
	Instance   string          `json:"instance,omitempty"`
	Detail     json.RawMessage `json:"detail,omitempty"`
	Stale      bool            `json:"stale,omitempty"` // the module is not heard of
	// OfLineage is the lineage of the report where it is not the current one: its
	// version then compares with nothing.
	OfLineage string `json:"of_lineage,omitempty"`
}

// Observation is what a module saw of the world for a resource.
type Observation struct {
	Module     string          `json:"module"`
	Subject    string          `json:"subject"`
	State      string          `json:"state"` // matches, diverged, unknown
	Detail     json.RawMessage `json:"detail,omitempty"`
	ObservedAt time.Time       `json:"observed_at"`
}

// State answers GET /v1/state/{kind}/{id}: requested, published and observed.
type State struct {
	Lineage      string         `json:"lineage"`
	Resource     Resource       `json:"resource"`
	Label        string         `json:"label,omitempty"` // what people call it: the prefix, the handle
	Deleted      bool           `json:"deleted"`
	Version      int64          `json:"version"` // requested
	Requested    time.Time      `json:"requested"`
	Published    int64          `json:"published"` // last version that is in Redis
	PublishedAt  time.Time      `json:"published_at,omitzero"`
	Attempts     int            `json:"attempts"`
	LastError    string         `json:"last_error,omitempty"`
	LaneState    string         `json:"lane_state"`
	Overall      Overall        `json:"overall"`
	Reason       string         `json:"reason,omitempty"`  // why it is not applied
	Waiting      []string       `json:"waiting,omitempty"` // modules that have not reported this version
	Consumers    []AppliedState `json:"consumers"`
	Observations []Observation  `json:"observations"`
}

// Trace answers GET /v1/trace/{kind}/{id}: the state with the history behind it.
type Trace struct {
	State
	Events  []TraceEvent  `json:"events"`  // newest first, bounded
	Changes []TraceChange `json:"changes"` // newest first, bounded
}

// TraceEvent is one outbox event of a resource.
type TraceEvent struct {
	Version     int64     `json:"version"`
	EventID     string    `json:"event_id"`
	Kind        string    `json:"kind"`
	Changed     []string  `json:"changed,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	State       string    `json:"state"` // pending, claimed, blocked, published
}

// TraceChange is one entry of the change log.
type TraceChange struct {
	ID        int64           `json:"id"`
	At        time.Time       `json:"at"`
	Table     string          `json:"table"`
	Op        string          `json:"op"`
	Actor     string          `json:"actor"`
	RequestID string          `json:"request_id,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}

// Produced is one aggregate's version that a change made.
type Produced struct {
	Resource Resource `json:"resource"`
	Version  int64    `json:"version"`
}
