package registry

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"hubn/registry/client"
)

// noun is one kind of noun as bulk imports and transactions write it: through the
// same handlers as the operations of its own, in a transaction that they join.
type noun struct {
	// operations are the ids of what creates, changes and deletes one.
	operations [3]string
	// check reports what is wrong with a body by itself.
	check  func(body []byte) error
	create func(ctx context.Context, body []byte) (*nounAnswer, error)
	change func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error)
	remove func(ctx context.Context, key, ifMatch string) (*nounAnswer, error)
}

// Certificates and revocations are parts of the aggregate of their CA, and nouns of
// their own to whoever writes them.
const (
	kindCertificate client.Kind = "certificate"
	kindRevocation  client.Kind = "revocation"
)

// nounAnswer is what a change of a noun is answered with.
type nounAnswer struct {
	etag, location string
	body           any
}

// key is the last part of the location: the id, or the number of an AS.
func (a *nounAnswer) key() string { return path.Base(a.location) }

// answered makes a nounAnswer of a handler's answer.
func answered[T any](out *answer[T], err error) (*nounAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &nounAnswer{etag: out.ETag, location: out.Location, body: out.Body}, nil
}

// removed makes a nounAnswer of a deletion.
func removed(_ *gone, err error) (*nounAnswer, error) {
	if err != nil {
		return nil, err
	}
	return &nounAnswer{}, nil
}

// readBody reads and checks a body.
func readBody[I input](s *service, body []byte) (in I, err error) {
	var document any
	if err := unmarshal(body, &document); err != nil {
		return in, notJSON(err)
	}
	return decoded[I](s, document)
}

func checks[I input](s *service) func([]byte) error {
	return func(body []byte) error {
		_, err := readBody[I](s, body)
		return err
	}
}

// creates reads a body and passes it to a handler.
func creates[I interface {
	*B
	input
}, B, T any](s *service, handler func(context.Context, B) (*answer[T], error)) func(context.Context, []byte) (*nounAnswer, error) {
	return func(ctx context.Context, body []byte) (*nounAnswer, error) {
		in, err := readBody[I](s, body)
		if err != nil {
			return nil, err
		}
		return answered(handler(ctx, *in))
	}
}

// numbered reads an id from a key.
func numbered(key string) (int64, error) {
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil || id < 1 {
		return 0, invalid("key", key, "%q is not an id", key)
	}
	return id, nil
}

func ifMatching(etag string) AlterParams { return AlterParams{IfMatch: etag} }

// makeNouns is the one table of what bulk imports and transactions can write.
func (s *service) makeNouns() map[client.Kind]noun {
	return map[client.Kind]noun{
		client.KindOrganisation: s.organisationNoun(),
		client.KindASN:          s.asnNoun(),
		client.KindPrefix:       s.prefixNoun(),
		client.KindPTR:          s.ptrNoun(),
		client.KindAnycast:      s.anycastNoun(),
		client.KindCA:           s.authorityNoun(),
		client.KindSession:      s.sessionNoun(),
		kindCertificate:         s.certificateNoun(),
		kindRevocation:          s.revocationNoun(),
	}
}

func (s *service) nouns() map[client.Kind]noun { return s.nounTable }

// nounKinds names the kinds for a message.
func (s *service) nounKinds() string {
	var kinds []string
	for kind := range s.nouns() {
		kinds = append(kinds, string(kind))
	}
	slices.Sort(kinds)
	return strings.Join(kinds, ", ")
}

func (s *service) organisationNoun() noun {
	return noun{
		operations: [3]string{"create-organisation", "change-organisation", "delete-organisation"},
		check:      checks[*organisationInput](s),
		create: creates[*organisationInput](s, func(ctx context.Context, in organisationInput) (*answer[client.Organisation], error) {
			return s.createOrganisation(ctx, &createOrganisationInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			return answered(s.changeOrganisation(ctx, &changeOrganisationInput{OrganisationPath{key}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			return removed(s.deleteOrganisation(ctx, &deleteOrganisationInput{OrganisationPath{key}, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) asnNoun() noun {
	number := func(key string) (ASNPath, error) {
		n, err := client.ParseASN(key)
		if err != nil {
			return ASNPath{}, invalid("key", key, "%v", err)
		}
		return ASNPath{Number: ASN{value: n}}, nil
	}
	return noun{
		operations: [3]string{"create-asn", "change-asn", "delete-asn"},
		check:      checks[*asnInput](s),
		create: creates[*asnInput](s, func(ctx context.Context, in asnInput) (*answer[client.ASNHolder], error) {
			return s.createASN(ctx, &createASNInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			n, err := number(key)
			if err != nil {
				return nil, err
			}
			return answered(s.changeASN(ctx, &changeASNInput{n, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			n, err := number(key)
			if err != nil {
				return nil, err
			}
			return removed(s.deleteASN(ctx, &deleteASNInput{n, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) prefixNoun() noun {
	return noun{
		operations: [3]string{"create-prefix", "change-prefix", "delete-prefix"},
		check:      checks[*prefixInput](s),
		create: creates[*prefixInput](s, func(ctx context.Context, in prefixInput) (*answer[client.Prefix], error) {
			return s.createPrefix(ctx, &createPrefixInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			return answered(s.changePrefix(ctx, &changePrefixInput{PrefixPath{key}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			return removed(s.deletePrefix(ctx, &deletePrefixInput{PrefixPath{key}, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) ptrNoun() noun {
	return noun{
		operations: [3]string{"create-ptr-record", "change-ptr-record", "delete-ptr-record"},
		check:      checks[*ptrInput](s),
		create: creates[*ptrInput](s, func(ctx context.Context, in ptrInput) (*answer[client.PTRRecord], error) {
			return s.createPTRRecord(ctx, &createPTRRecordInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return answered(s.changePTRRecord(ctx, &changePTRRecordInput{PTRPath{id}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return removed(s.deletePTRRecord(ctx, &deletePTRRecordInput{PTRPath{id}, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) anycastNoun() noun {
	return noun{
		operations: [3]string{"create-anycast", "change-anycast", "delete-anycast"},
		check:      checks[*anycastInput](s),
		create: creates[*anycastInput](s, func(ctx context.Context, in anycastInput) (*answer[client.Anycast], error) {
			return s.createAnycast(ctx, &createAnycastInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return answered(s.changeAnycast(ctx, &changeAnycastInput{AnycastPath{id}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return removed(s.deleteAnycast(ctx, &deleteAnycastInput{AnycastPath{id}, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) authorityNoun() noun {
	return noun{
		operations: [3]string{"create-certificate-authority", "change-certificate-authority", "delete-certificate-authority"},
		check:      checks[*authorityInput](s),
		create: creates[*authorityInput](s, func(ctx context.Context, in authorityInput) (*answer[client.CertificateAuthority], error) {
			return s.createAuthority(ctx, &createAuthorityInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			return answered(s.changeAuthority(ctx, &changeAuthorityInput{AuthorityPath{key}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			return removed(s.deleteAuthority(ctx, &deleteAuthorityInput{AuthorityPath{key}, ifMatching(ifMatch)}))
		},
	}
}

func (s *service) sessionNoun() noun {
	return noun{
		operations: [3]string{"create-session", "change-session", "delete-session"},
		check:      checks[*sessionInput](s),
		create: creates[*sessionInput](s, func(ctx context.Context, in sessionInput) (*answer[client.Session], error) {
			return s.createSession(ctx, &createSessionInput{Body: in})
		}),
		change: func(ctx context.Context, key, ifMatch string, patch []byte) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return answered(s.changeSession(ctx, &changeSessionInput{SessionPath{id}, ifMatching(ifMatch), PatchBody{patch}}))
		},
		remove: func(ctx context.Context, key, ifMatch string) (*nounAnswer, error) {
			id, err := numbered(key)
			if err != nil {
				return nil, err
			}
			return removed(s.deleteSession(ctx, &deleteSessionInput{SessionPath{id}, ifMatching(ifMatch)}))
		},
	}
}

// A certificate is immutable, and a revocation is for ever: they are only created.
func (s *service) certificateNoun() noun {
	return noun{
		operations: [3]string{"create-certificate"},
		check:      checks[*certificateInput](s),
		create: creates[*certificateInput](s, func(ctx context.Context, in certificateInput) (*answer[client.Certificate], error) {
			return s.createCertificate(ctx, &createCertificateInput{Body: in})
		}),
	}
}

func (s *service) revocationNoun() noun {
	return noun{
		operations: [3]string{"create-revocation"},
		check:      checks[*revocationInput](s),
		create: creates[*revocationInput](s, func(ctx context.Context, in revocationInput) (*answer[client.Revocation], error) {
			return s.createRevocation(ctx, &createRevocationInput{Body: in})
		}),
	}
}

// check implements input: the schema says all of a revocation.
func (in *revocationInput) check(*faults) {}
