package client

import (
	"context"
	"net/netip"
	"strconv"
	"time"
)

// Session is a BGP session as it ought to be. Its password can be written and not
// read; PasswordSet says that there is one.
type Session struct {
	ID            int64      `json:"id"`
	Collector     string     `json:"collector"`
	LocalASN      ASN        `json:"local_asn,omitempty"` // 0 is the collector's own
	LocalAddress  netip.Addr `json:"local_address,omitzero"`
	RemoteASN     ASN        `json:"remote_asn"`
	RemoteAddress netip.Addr `json:"remote_address"`
	Families      []string   `json:"families"` // ipv4-unicast, ipv6-unicast
	PasswordSet   bool       `json:"password_set"`
	MaxPrefixes   int        `json:"max_prefixes,omitempty"`
	Wanted        string     `json:"wanted"` // up, down
	Description   string     `json:"description"`
	Revision      int64      `json:"revision"`
}

// SessionPassword answers GET /v1/sessions/{id}/password: the password of the
// session at a version. It is empty where none is set.
type SessionPassword struct {
	Lineage  string    `json:"lineage"`
	ReadAt   time.Time `json:"read_at"` // by the database's clock
	Resource Resource  `json:"resource"`
	Version  int64     `json:"version"`
	Password string    `json:"password"`
}

// SessionPassword reads a session's password; the looking glass's own token alone
// may, over TLS or loopback.
func (c *Client) SessionPassword(ctx context.Context, id int64) (out SessionPassword, err error) {
	return out, c.get(ctx, "/v1/sessions/"+strconv.FormatInt(id, 10)+"/password", nil, &out)
}
