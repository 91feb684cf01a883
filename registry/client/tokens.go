package client

import (
	"net/netip"
	"time"
)

// Token is an API token as the Registry shows it: never its secret.
type Token struct {
	ID          int64          `json:"id"`
	PublicID    string         `json:"public_id"` // the part of the token that may be shown
	Name        string         `json:"name"`      // the actor in the change log
	Roles       []string       `json:"roles"`
	Module      string         `json:"module,omitempty"` // with the role module
	SourceCIDRs []netip.Prefix `json:"source_cidrs"`     // empty: from everywhere
	ExpiresAt   time.Time      `json:"expires_at,omitzero"`
	RevokedAt   time.Time      `json:"revoked_at,omitzero"`
	LastUsedAt  time.Time      `json:"last_used_at,omitzero"` // to the minute
	CreatedAt   time.Time      `json:"created_at"`
	Revision    int64          `json:"revision"`
}

// TokenOrder is the body of POST /v1/tokens.
type TokenOrder struct {
	Name        string         `json:"name"`
	Roles       []string       `json:"roles,omitempty"` // what it may everywhere
	Module      string         `json:"module,omitempty"`
	SourceCIDRs []netip.Prefix `json:"source_cidrs,omitempty"`
	ExpiresAt   time.Time      `json:"expires_at,omitzero"`
	Grants      []GrantOrder   `json:"grants,omitempty"` // what it may on a part of the Registry
}

// GrantOrder is the body of POST /v1/grants, and without the token a part of a
// TokenOrder. The organisation is named by its id or its handle.
type GrantOrder struct {
	TokenID        int64        `json:"token_id,omitempty"`
	Role           string       `json:"role"`
	OrganisationID int64        `json:"organisation_id,omitempty"`
	Organisation   string       `json:"organisation,omitempty"`
	Prefix         netip.Prefix `json:"prefix,omitzero"`
}

// NewToken answers POST /v1/tokens: the one time that the secret is shown.
type NewToken struct {
	Token
	Secret string  `json:"token,omitempty"` // empty after a dry run
	Grants []Grant `json:"grants"`
}
