package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

var (
	caModes             = []string{"hosted", "delegated"}
	caStates            = []string{"active", "retired"}
	certificateProfiles = []string{"child-ca", "bgpsec-router"}
	revocationReasons   = []string{"unspecified", "key-compromise", "ca-compromise", "affiliation-changed", "superseded", "cessation-of-operation"}
	truths              = []string{"true", "false"}
)

func (s *shell) authority() *noun[client.CertificateAuthority] {
	return &noun[client.CertificateAuthority]{
		shell: s, command_: "ca", name: "certificate authority", plural: "certificate authorities",
		about: "Certificate authorities of the resource PKI", kind: client.KindCA, path: "/v1/certificate-authorities",
		long: `Certificate authorities of the resource PKI. The key of a hosted one is made and kept
by HubN; a delegated one keeps its own and sends a request for a certificate.`,
		argument: "a certificate authority: its name or id", id: idOr(client.KindCA, asTyped), key: "name",
		fields: []field{
			{flag: "name", usage: "its name, which is unique", member: "name"},
			{flag: "parent", usage: "the CA that certifies it, by name or id; none for a trust anchor", member: "parent", clear: "none"},
			{flag: "organisation", usage: "the handle of whose it is; none for nobody's", member: "organisation", clear: "none"},
			{flag: "mode", usage: "who keeps its key: " + strings.Join(caModes, ", "), member: "mode", values: caModes, fixed: true},
			{flag: "csr", usage: "the file with a delegated CA's request (PKCS#10), PEM or DER; - for standard input", member: "csr", parse: parseRequestFile},
			{flag: "resources", usage: "what it may certify: organisation, all, or a list such as '192.0.2.0/24 AS64496-AS64511'", member: "resources"},
			{flag: "state", usage: strings.Join(caStates, ", "), member: "state", values: caStates},
		},
		implied: implyAuthority,
		filters: []filter{
			{flag: "organisation", usage: "only those of this organisation"},
			{flag: "parent", usage: "only those that this CA certifies"},
			{flag: "mode", usage: "only those of this mode: " + strings.Join(caModes, ", "), values: caModes},
			{flag: "state", usage: "only those in this state: " + strings.Join(caStates, ", "), values: caStates},
			{flag: "covers", usage: "only those whose named resources contain this prefix or address"},
			{flag: "asn", usage: "only those whose named resources contain this AS number"},
			{flag: "text", usage: "only those with this in their name"},
		},
		head: []string{"ID", "NAME", "PARENT", "ORGANISATION", "MODE", "STATE", "RESOURCES"},
		row: func(a client.CertificateAuthority) []string {
			return []string{number(a.ID), shorten(a.Name, 20), shorten(a.Parent, 16), shorten(a.Organisation, 16), a.Mode, a.State, shorten(a.Resources, 24)}
		},
		show: func(w io.Writer, a client.CertificateAuthority) {
			pairs(w, [2]string{"id", number(a.ID)}, [2]string{"name", a.Name}, [2]string{"certified by", a.Parent},
				[2]string{"organisation", a.Organisation}, [2]string{"mode", a.Mode}, [2]string{"state", a.State},
				[2]string{"resources", a.Resources}, [2]string{"key", a.Key}, [2]string{"revision", number(a.Revision)})
			fmt.Fprint(w, a.CSR)
		},
		label: func(a client.CertificateAuthority) string { return fmt.Sprintf("ca:%d %s", a.ID, a.Name) },
	}
}

// implyAuthority makes a CA with a request a delegated one.
func implyAuthority(body map[string]any, creating bool) {
	clearHolder(body, creating)
	if !creating {
		return
	}
	dropNulls(body)
	if _, request := body["csr"]; request && body["mode"] == nil {
		body["mode"] = "delegated"
	}
}

// maxRequestFile bounds what is read for a request: none is nearly as long.
const maxRequestFile = 64 << 10

// parseRequestFile reads a request for a certificate, which the Registry checks.
// DER goes as base64.
func parseRequestFile(path string) (any, error) {
	content, err := readFile(path, maxRequestFile)
	if err != nil {
		return nil, err
	}
	// A request in DER is a SEQUENCE; neither PEM nor base64 of one begins so.
	if len(content) > 0 && content[0] == 0x30 {
		return content, nil
	}
	return string(content), nil
}

// readFile reads a file that a flag names, or standard input for a dash.
func readFile(path string, limit int64) ([]byte, error) {
	in := os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	content, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("%s has more than %d octets: it is another file", path, limit)
	}
	return content, nil
}

func (s *shell) certificateCommand() *cobra.Command {
	n := s.certificate()
	return s.group("certificate", n.about, n.long, n.listCommand(), n.showCommand(), n.createCommand(), s.revokeCommand(), s.revocationsCommand())
}

func (s *shell) certificate() *noun[client.Certificate] {
	return &noun[client.Certificate]{
		shell: s, command_: "certificate", name: "certificate", plural: "certificates",
		about: "Certificates that CAs issue to other CAs and to BGPsec routers", path: "/v1/certificates",
		long: `Certificates that CAs issue to other CAs and to BGPsec routers. One never changes: it
is revoked, and another is made.`,
		argument: "a certificate: its id", id: certificateID, key: "csr",
		fields: []field{
			{flag: "csr", usage: "the file with the request (PKCS#10), PEM or DER; - for standard input", member: "csr", parse: parseRequestFile},
			{flag: "ca", usage: "the CA that issues it, by name or id", member: "ca"},
			{flag: "profile", usage: "what it is for: " + strings.Join(certificateProfiles, ", "), member: "profile", values: certificateProfiles},
			{flag: "resources", usage: "its resources: '192.0.2.0/24 AS64496-AS64511'; one AS number for a router", member: "resources"},
			{flag: "not-before", usage: "from when it holds, such as 2026-12-31T00:00:00Z; from now on if not given", member: "not_before", parse: parseInstant},
			{flag: "not-after", usage: "until when it holds: 365d from now, or a time such as 2026-12-31T00:00:00Z", member: "not_after", parse: s.parseFuture},
		},
		filters: []filter{
			{flag: "ca", usage: "only those of this CA"},
			{flag: "profile", usage: "only those for this: " + strings.Join(certificateProfiles, ", "), values: certificateProfiles},
			{flag: "asn", usage: "only those for this AS number"},
			{flag: "covers", usage: "only those for this prefix or address"},
			{flag: "key", usage: "only those of the key with this identifier"},
			{flag: "revoked", usage: "true for those that are revoked, false for the others", values: truths},
			{flag: "expires-before", usage: "only those that end before this time, such as 2026-12-31T00:00:00Z"},
		},
		head: []string{"ID", "CA", "PROFILE", "RESOURCES", "UNTIL", "STATE"},
		row: func(c client.Certificate) []string {
			return []string{number(c.ID), shorten(c.CA, 20), c.Profile, shorten(c.Resources, 24), c.NotAfter.UTC().Format(time.DateOnly), certificateState(c, time.Now())}
		},
		show: func(w io.Writer, c client.Certificate) {
			revoked := ""
			if c.Revoked != nil {
				revoked = moment(c.Revoked.RevokedAt) + ", " + c.Revoked.Reason
			}
			pairs(w, [2]string{"id", number(c.ID)}, [2]string{"CA", c.CA}, [2]string{"profile", c.Profile}, [2]string{"resources", c.Resources},
				[2]string{"from", moment(c.NotBefore)}, [2]string{"until", moment(c.NotAfter)}, [2]string{"state", certificateState(c, time.Now())},
				[2]string{"revoked", revoked}, [2]string{"key", c.Key})
			fmt.Fprint(w, c.CSR)
		},
		label: func(c client.Certificate) string {
			return fmt.Sprintf("certificate %d (%s, %s)", c.ID, c.Profile, c.Resources)
		},
	}
}

// certificateState is what a certificate is at a time.
func certificateState(c client.Certificate, now time.Time) string {
	switch {
	case c.Revoked != nil:
		return "revoked"
	case now.After(c.NotAfter):
		return "expired"
	case now.Before(c.NotBefore):
		return "to come"
	}
	return "wanted"
}

func certificateID(_ context.Context, _ *client.Client, text string) (string, error) {
	if _, err := strconv.ParseInt(text, 10, 64); err != nil {
		return "", fmt.Errorf("%q is not the id of a certificate: `hubn certificate list` shows them", text)
	}
	return text, nil
}

func parseInstant(text string) (any, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time: write 2026-12-31T00:00:00Z", text)
	}
	return t, nil
}

// parseFuture is future for a flag of a noun.
func (s *shell) parseFuture(text string) (any, error) {
	now := time.Now()
	if d, err := duration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	return s.future(text, now)
}

func (s *shell) revokeCommand() *cobra.Command {
	var how writing
	var crlReason string
	cmd := &cobra.Command{
		Use:   "revoke CERTIFICATE...",
		Short: "Revoke certificates; nothing takes that back",
		Args:  s.arguments(1, -1, "a certificate: its id"),
	}
	how.flags(cmd.Flags(), false)
	cmd.Flags().StringVar(&crlReason, "crl-reason", revocationReasons[0], "what the list of revoked certificates says (RFC 5280 section 5.3.1): "+strings.Join(revocationReasons, ", "))
	_ = cmd.RegisterFlagCompletionFunc("crl-reason", cobra.FixedCompletions(revocationReasons, cobra.ShellCompDirectiveNoFileComp))
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		made, failed := []client.Revocation{}, []error{}
		for _, text := range args {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				failed = append(failed, s.usage("%q is not the id of a certificate: `hubn certificate list` shows them", text))
				continue
			}
			var v client.Revocation
			written, err := cl.Create(ctx, "/v1/revocations", how.write(), map[string]any{"certificate_id": id, "reason": crlReason}, &v)
			if err != nil {
				failed = append(failed, explain(cl.URL(), err))
				continue
			}
			made = append(made, v)
			if !out.json() {
				n := s.revocation()
				n.done(out.cmd.OutOrStdout(), how, "revoked", n.label(v), written)
			}
		}
		if out.json() && len(made) > 0 {
			var err error
			if len(args) == 1 {
				err = out.Print(made[0], nil)
			} else {
				err = out.Print(made, nil)
			}
			failed = append(failed, err)
		}
		if len(failed) == 1 {
			return failed[0]
		}
		return errors.Join(failed...)
	})
}

// revocationsCommand lists what is revoked.
func (s *shell) revocationsCommand() *cobra.Command {
	n := s.revocation()
	cmd := n.listCommand()
	cmd.Use, cmd.Short = "revocations", "List what is revoked, and why"
	return cmd
}

func (s *shell) revocation() *noun[client.Revocation] {
	return &noun[client.Revocation]{
		shell: s, name: "revocation", plural: "revocations", path: "/v1/revocations",
		filters: []filter{
			{flag: "ca", usage: "only those of this CA's certificates"},
			{flag: "certificate", usage: "only that of the certificate with this id"},
			{flag: "crl-reason", query: "revoked_for", usage: "only those for this reason: " + strings.Join(revocationReasons, ", "), values: revocationReasons},
		},
		head: []string{"ID", "CERTIFICATE", "CA", "REASON", "REVOKED"},
		row: func(v client.Revocation) []string {
			return []string{number(v.ID), number(v.CertificateID), shorten(v.CA, 30), v.Reason, moment(v.RevokedAt)}
		},
		label: func(v client.Revocation) string { return fmt.Sprintf("certificate %d of %s", v.CertificateID, v.CA) },
	}
}
