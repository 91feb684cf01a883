package client

import "context"

// Transaction is several changes at once: all are made, in their order, or none.
type Transaction struct {
	Changes []TransactionChange `json:"changes" minItems:"1" maxItems:"1000"`
}

// The operations of a TransactionChange.
const (
	OpCreate = "create"
	OpChange = "change"
	OpDelete = "delete"
)

// TransactionChange is one change of a Transaction.
type TransactionChange struct {
	Op   string `json:"op" enum:"create,change,delete"`
	Kind Kind   `json:"kind" maxLength:"40" doc:"organisation, asn, prefix, ptr, anycast, …"`
	// Key names what is changed or deleted, as the path of its own operation does.
	Key string `json:"key,omitempty" maxLength:"100" doc:"What is changed or deleted, as in the path of its own operation: an id, 192.0.2.0/24, a handle, an AS number"`
	// Ref names it instead by the As of an earlier change of the transaction.
	Ref string `json:"ref,omitempty" maxLength:"80" doc:"Instead of key: the name that an earlier change gave to what it made"`
	// As is a name for what the change makes: later ones say {"$ref": "name"} in
	// their bodies where its id belongs.
	As string `json:"as,omitempty" maxLength:"80" doc:"A name for what is made: {\"$ref\": \"name\"} in the body of a later change stands for its id"`
	// IfMatch is the ETag that a change or deletion was decided on. What the
	// transaction itself has made needs none.
	IfMatch string         `json:"if_match,omitempty" maxLength:"100" doc:"The ETag that the change was decided on; required for what the transaction itself has not made"`
	Body    map[string]any `json:"body,omitempty" doc:"What a POST to the kind's collection takes, or a merge patch (RFC 7396)"`
}

// TransactionResult answers a Transaction.
type TransactionResult struct {
	Results []ChangeResult `json:"results"`
}

// ChangeResult is what one change of a Transaction made.
type ChangeResult struct {
	Op       string `json:"op"`
	Kind     Kind   `json:"kind"`
	Key      string `json:"key"`
	ETag     string `json:"etag,omitempty"`
	Location string `json:"location,omitempty"` // of what was created
	Body     any    `json:"body,omitempty"`     // as it is now
}

// Transact makes several changes at once.
func (c *Client) Transact(ctx context.Context, w Write, t Transaction) (out TransactionResult, written Written, err error) {
	written, err = c.Create(ctx, "/v1/transactions", w, t, &out)
	return out, written, err
}
