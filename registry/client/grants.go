package client

import (
	"net/netip"
	"time"
)

// Grant gives the holder of a token a role on what an organisation holds, or on a
// prefix with all that lies in it.
type Grant struct {
	ID      int64  `json:"id"`
	TokenID int64  `json:"token_id"`
	Token   string `json:"token"` // the token's name
	Role    string `json:"role"`
	// OrganisationID and Organisation, its handle, are empty with a prefix.
	OrganisationID int64        `json:"organisation_id,omitempty"`
	Organisation   string       `json:"organisation,omitempty"`
	Prefix         netip.Prefix `json:"prefix,omitzero"`
	CreatedAt      time.Time    `json:"created_at"`
}

// Self is who a token stands for: the answer of GET /v1/self.
type Self struct {
	Name     string   `json:"name"`                // the actor in the change log
	PublicID string   `json:"public_id,omitempty"` // empty for a token of the process
	Roles    []string `json:"roles"`
	Module   string   `json:"module,omitempty"`
	Grants   []Scope  `json:"grants"`
}

// Scope is where a grant's role holds.
type Scope struct {
	Role           string       `json:"role"`
	OrganisationID int64        `json:"organisation_id,omitempty"`
	Prefix         netip.Prefix `json:"prefix,omitzero"`
}
