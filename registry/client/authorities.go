package client

import (
	"net/netip"
	"time"
)

// CertificateAuthority is a certificate authority of the resource PKI.
type CertificateAuthority struct {
	ID             int64  `json:"id"`
	Name           string `json:"name"`
	ParentID       int64  `json:"parent_id,omitempty"` // none is a trust anchor
	Parent         string `json:"parent,omitempty"`    // its name
	OrganisationID int64  `json:"organisation_id,omitempty"`
	Organisation   string `json:"organisation,omitempty"` // its handle
	Mode           string `json:"mode"`                   // hosted, delegated
	// CSR is the request of a delegated CA in PEM.
	CSR string `json:"csr,omitempty"`
	// Key is the key identifier of the request in hexadecimal (RFC 6487 section 4.8.2).
	Key string `json:"key,omitempty"`
	// Resources is "organisation" (those that its organisation holds), "all", or a
	// list such as "192.0.2.0/24, 2001:db8::/32, AS64496-AS64511".
	Resources string         `json:"resources"`
	Prefixes  []netip.Prefix `json:"prefixes"` // of the list, without overlaps
	ASNs      []ASNRange     `json:"asns"`
	State     string         `json:"state"` // active, retired
	Revision  int64          `json:"revision"`
}

// Certificate is a certificate that a CA ought to issue; it never changes.
type Certificate struct {
	ID        int64             `json:"id"`
	CAID      int64             `json:"ca_id"`
	CA        string            `json:"ca"`      // its name
	Profile   string            `json:"profile"` // child-ca, bgpsec-router
	CSR       string            `json:"csr"`     // PEM
	Key       string            `json:"key,omitempty"`
	Resources string            `json:"resources"` // as of a CertificateAuthority
	Prefixes  []netip.Prefix    `json:"prefixes"`
	ASNs      []ASNRange        `json:"asns"`
	NotBefore time.Time         `json:"not_before"`
	NotAfter  time.Time         `json:"not_after"`
	CreatedAt time.Time         `json:"created_at"`
	Revoked   *RevocationSource `json:"revoked,omitempty"`
	Revision  int64             `json:"revision"`
}

// Revocation says that a certificate is not to be believed any more; it never
// changes, and nothing takes it back.
type Revocation struct {
	ID            int64     `json:"id"`
	CertificateID int64     `json:"certificate_id"`
	CAID          int64     `json:"ca_id"`
	CA            string    `json:"ca"`     // its name
	Reason        string    `json:"reason"` // of RFC 5280 section 5.3.1: key-compromise, superseded, …
	RevokedAt     time.Time `json:"revoked_at"`
	Revision      int64     `json:"revision"`
}
