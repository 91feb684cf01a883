package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

func (s *shell) tokenCommand() *cobra.Command {
	return s.group("token", "Make, list and revoke tokens", "",
		s.tokenCreateCommand(), s.tokenListCommand(), s.tokenRevokeCommand())
}

func (s *shell) tokenCreateCommand() *cobra.Command {
	var name, module, expires string
	var roles, from []string
	cmd := &cobra.Command{
		Use:   "create --name NAME --role ROLE",
		Short: "Make a token; it is shown this once",
		Long: `Make a token. Only its hash is stored: what this prints is never shown again.

The roles are viewer (reads), operator (changes resources, orders modules, operates
the outbox), admin (everything) and module (what the module named by --module does
in its own name).`,
		Args: s.arguments(0, 0, ""),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "who uses it: the actor in the change log")
	flags.StringSliceVar(&roles, "role", nil, "viewer, operator, admin or module (may be repeated)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin", "module"}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&module, "module", "", "with the role module: the module that it speaks for")
	flags.StringVar(&expires, "expires", "", "when it ends: 720h from now, or a time such as 2026-12-31T00:00:00Z; never if not given")
	flags.StringSliceVar(&from, "from", nil, "only from these addresses or prefixes (may be repeated)")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if name == "" || len(roles) == 0 {
			return s.usage("give --name NAME and --role ROLE")
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		body := map[string]any{"name": name, "roles": roles}
		if module != "" {
			body["module"] = module
		}
		if len(from) > 0 {
			body["source_cidrs"] = from
		}
		if expires != "" {
			at, err := s.future(expires, time.Now())
			if err != nil {
				return err
			}
			body["expires_at"] = at
		}
		var made client.NewToken
		if err := cl.Raw(ctx, http.MethodPost, "/v1/tokens", nil, body, &made); err != nil {
			return err
		}
		return out.Print(made, func(w io.Writer) {
			fmt.Fprintln(w, made.Secret)
			out.remark("token %d for %s (%s); it is shown this once", made.ID, made.Name, strings.Join(made.Roles, ", "))
		})
	})
}

// future reads a time, or a duration from now.
func (s *shell) future(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	t, err := s.past(text, now)
	if err != nil || !t.After(now) {
		return time.Time{}, s.usage("%q is not a time to come: write 720h, or 2026-12-31T00:00:00Z", text)
	}
	return t, nil
}

func (s *shell) tokenListCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Args:  s.arguments(0, 0, ""),
	}, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		tokens := []client.Token{}
		for token, err := range client.List[client.Token](ctx, cl, "/v1/tokens", nil) {
			if err != nil {
				return err
			}
			tokens = append(tokens, token)
		}
		return out.Print(tokens, func(w io.Writer) {
			t := newTable(w, "ID", "TOKEN", "NAME", "ROLES", "MODULE", "FROM", "EXPIRES", "LAST USED", "REVOKED")
			for _, token := range tokens {
				t.row(strconv.FormatInt(token.ID, 10), "hubn_"+token.PublicID+"…", token.Name, strings.Join(token.Roles, ", "), token.Module,
					prefixesText(token.SourceCIDRs), moment(token.ExpiresAt), moment(token.LastUsedAt), moment(token.RevokedAt))
			}
			t.end()
		})
	})
}

func prefixesText(prefixes []netip.Prefix) string {
	parts := make([]string, len(prefixes))
	for i, p := range prefixes {
		parts[i] = p.String()
	}
	return strings.Join(parts, ", ")
}

func (s *shell) tokenRevokeCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke tokens: they are refused from now on",
		Args:  s.arguments(1, -1, "the id of a token, as `hubn token list` shows it"),
		PreRunE: func(_ *cobra.Command, args []string) error {
			for _, id := range args {
				if _, err := strconv.ParseInt(id, 10, 64); err != nil {
					return s.usage("%q is not the id of a token: `hubn token list` shows them", id)
				}
			}
			return nil
		},
	}, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		var failed []error
		for _, id := range args {
			if err := cl.Raw(ctx, http.MethodDelete, "/v1/tokens/"+id, nil, nil, nil); err != nil {
				failed = append(failed, err)
				continue
			}
			if !out.json() {
				fmt.Fprintf(out.cmd.OutOrStdout(), "revoked token %s\n", id)
			}
		}
		if len(failed) == 0 && out.json() {
			return out.Print(map[string]any{"revoked": args}, nil)
		}
		return errors.Join(failed...)
	})
}
