package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hubn/registry/client"
)

// tokenRoles are what a token may be everywhere.
var tokenRoles = []string{"viewer", "auditor", "authority", "operator", "admin", "module"}

func (s *shell) tokenCommand() *cobra.Command {
	return s.group("token", "Make, list, change and revoke tokens", "",
		s.tokenCreateCommand(), s.tokenListCommand(), s.tokenShowCommand(), s.tokenSetCommand(), s.tokenRevokeCommand())
}

// tokenFlags are the flags of what a token may, from where and until when.
type tokenFlags struct {
	name, module, expires string
	roles, from           []string
}

func (f *tokenFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "who uses it: the actor in the change log")
	flags.StringSliceVar(&f.roles, "role", nil, strings.Join(tokenRoles, ", ")+" (may be repeated)")
	_ = cmd.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(tokenRoles, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&f.module, "module", "", "with the role module: the module that it speaks for")
	flags.StringVar(&f.expires, "expires", "", "when it ends: 720h from now, or a time such as 2026-12-31T00:00:00Z; never if not given")
	flags.StringSliceVar(&f.from, "from", nil, "only from these addresses or prefixes (may be repeated)")
}

// body is what the flags that were given say.
func (f *tokenFlags) body(s *shell, flags *pflag.FlagSet) (map[string]any, error) {
	body := map[string]any{}
	for flag, put := range map[string]func() error{
		"name":   func() error { body["name"] = f.name; return nil },
		"role":   func() error { body["roles"] = listed(f.roles); return nil },
		"module": func() error { body["module"] = f.module; return nil },
		"from":   func() error { body["source_cidrs"] = listed(f.from); return nil },
		"expires": func() error {
			if f.expires == "never" {
				body["expires_at"] = nil
				return nil
			}
			at, err := s.future(f.expires, time.Now())
			body["expires_at"] = at
			return err
		},
	} {
		if flags.Changed(flag) {
			if err := put(); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// listed is a list without empty values: an empty value alone makes an empty list.
func listed(texts []string) []string {
	list := []string{}
	for _, text := range texts {
		if text != "" && text != "none" {
			list = append(list, text)
		}
	}
	return list
}

func (s *shell) tokenCreateCommand() *cobra.Command {
	var f tokenFlags
	var grants []string
	var how writing
	cmd := &cobra.Command{
		Use:   "create --name NAME --role ROLE | --grant ROLE@PLACE",
		Short: "Make a token; it is shown this once",
		Long: `Make a token. Only its hash is stored: what this prints is never shown again.

With --role it may something everywhere: viewer (reads), auditor (reads, also the
history and the tokens), authority (certifies), operator (changes resources, orders
modules, operates the outbox), admin (everything) and module (what the module named
by --module does in its own name).

With --grant it may something on a part of the Registry: member@EXAMPLE-ORG on what
an organisation holds, allocator@192.0.2.0/24 on a prefix and all that lies in it.
` + "`hubn grant`" + ` gives and takes more of them later.`,
		Args: s.arguments(0, 0, ""),
	}
	f.add(cmd)
	cmd.Flags().StringSliceVar(&grants, "grant", nil, "ROLE@ORGANISATION or ROLE@PREFIX (may be repeated)")
	how.flags(cmd.Flags(), false)
	body := map[string]any{}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if f.name == "" || len(f.roles) == 0 && len(grants) == 0 {
			return s.usage("give --name NAME and --role ROLE or --grant ROLE@PLACE")
		}
		if body, err = f.body(s, cmd.Flags()); err != nil {
			return err
		}
		orders := []client.GrantOrder{}
		for _, text := range grants {
			order, err := parseGrant(text)
			if err != nil {
				return s.Usage(err)
			}
			orders = append(orders, order)
		}
		if len(orders) > 0 {
			body["grants"] = orders
		}
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		var made client.NewToken
		if _, err := cl.Create(ctx, "/v1/tokens", how.write(), body, &made); err != nil {
			return err
		}
		return out.Print(made, func(w io.Writer) {
			if how.dryRun {
				fmt.Fprintf(w, "dry run, nothing was changed: a token for %s would be made (%s)\n", made.Name, mayText(made.Token, made.Grants))
				return
			}
			fmt.Fprintln(w, made.Secret)
			out.remark("token %d for %s (%s); it is shown this once", made.ID, made.Name, mayText(made.Token, made.Grants))
		})
	})
}

// mayText is what a token may, everywhere and by its grants.
func mayText(t client.Token, grants []client.Grant) string {
	parts := append([]string{}, t.Roles...)
	if t.Module != "" {
		parts = append(parts[:0], "module "+t.Module)
		for _, r := range t.Roles {
			if r != "module" {
				parts = append(parts, r)
			}
		}
	}
	for _, g := range grants {
		if g.TokenID == t.ID {
			parts = append(parts, g.Role+"@"+grantPlace(g))
		}
	}
	return strings.Join(parts, ", ")
}

// future reads a time, or a duration from now.
func (s *shell) future(text string, now time.Time) (time.Time, error) {
	if d, err := duration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	t, err := s.past(text, now)
	if err != nil || !t.After(now) {
		return time.Time{}, s.usage("%q is not a time to come: write 30d, 720h, or 2026-12-31T00:00:00Z", text)
	}
	return t, nil
}

// all is a whole list.
func all[T any](ctx context.Context, cl *client.Client, path string) ([]T, error) {
	items := []T{}
	for item, err := range client.List[T](ctx, cl, path, nil) {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (s *shell) tokenListCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Args:  s.arguments(0, 0, ""),
	}, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		tokens, err := all[client.Token](ctx, cl, "/v1/tokens")
		if err != nil {
			return err
		}
		if out.json() {
			return out.Print(tokens, nil)
		}
		grants, err := all[client.Grant](ctx, cl, "/v1/grants")
		if err != nil {
			return err
		}
		t := newTable(out.cmd.OutOrStdout(), "ID", "NAME", "MAY", "STATE", "EXPIRES", "LAST USED")
		for _, token := range tokens {
			t.row(number(token.ID), shorten(token.Name, 22), shorten(mayText(token, grants), 32), tokenState(token, time.Now()),
				day(token.ExpiresAt), minute(token.LastUsedAt))
		}
		t.end()
		return nil
	})
}

// tokenState is a word for whether a token is good.
func tokenState(t client.Token, now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(now):
		return "expired"
	}
	return "valid"
}

func day(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format(time.DateOnly)
}

func minute(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04")
}

func (s *shell) tokenShowCommand() *cobra.Command {
	return s.asking(&cobra.Command{
		Use:   "show [ID]",
		Short: "Show one token and its grants; without an id, the one in use here",
		Args:  s.arguments(0, 1, "the id of a token, as `hubn token list` shows it"),
		PreRunE: func(_ *cobra.Command, args []string) error {
			return s.tokenIDs(args)
		},
	}, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		if len(args) == 0 {
			return s.showSelf(ctx, cl, out)
		}
		var token client.Token
		if _, err := cl.Get(ctx, "/v1/tokens/"+args[0], &token); err != nil {
			return err
		}
		if out.json() {
			return out.Print(token, nil)
		}
		grants, err := client.ListPage[client.Grant](ctx, cl, "/v1/grants", map[string][]string{"token": args, "limit": {"1000"}})
		if err != nil {
			return err
		}
		w := out.cmd.OutOrStdout()
		pairs(w, [2]string{"id", number(token.ID)}, [2]string{"token", "hubn_" + token.PublicID + "…"}, [2]string{"name", token.Name},
			[2]string{"roles", strings.Join(token.Roles, ", ")}, [2]string{"module", token.Module}, [2]string{"from", prefixesText(token.SourceCIDRs)},
			[2]string{"state", tokenState(token, time.Now())}, [2]string{"expires", moment(token.ExpiresAt)},
			[2]string{"last used", moment(token.LastUsedAt)}, [2]string{"revoked", moment(token.RevokedAt)}, [2]string{"made", moment(token.CreatedAt)})
		for _, g := range grants.Items {
			fmt.Fprintf(w, "grant %d: %s on %s\n", g.ID, g.Role, grantPlace(g))
		}
		return nil
	})
}

// showSelf tells whom the token in use stands for.
func (s *shell) showSelf(ctx context.Context, cl *client.Client, out *Output) error {
	var self client.Self
	if _, err := cl.Get(ctx, "/v1/self", &self); err != nil {
		return err
	}
	return out.Print(self, func(w io.Writer) {
		pairs(w, [2]string{"name", self.Name}, [2]string{"token", prefixed("hubn_", self.PublicID, "…")},
			[2]string{"roles", strings.Join(self.Roles, ", ")}, [2]string{"module", self.Module})
		for _, g := range self.Grants {
			place := g.Prefix.String()
			if !g.Prefix.IsValid() {
				place = fmt.Sprintf("organisation:%d", g.OrganisationID)
			}
			fmt.Fprintf(w, "grant: %s on %s\n", g.Role, place)
		}
	})
}

// prefixed is text between two others; nothing if it is empty.
func prefixed(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

func (s *shell) tokenSetCommand() *cobra.Command {
	var f tokenFlags
	var how writing
	cmd := &cobra.Command{
		Use:   "set ID",
		Short: "Change what a token may everywhere, from where and until when",
		Long: `Change what the flags name, and leave the rest as it is. --role and --from replace
all that there are, or with none take them away; --expires never takes the end away.`,
		Args: s.arguments(1, 1, "the id of a token, as `hubn token list` shows it"),
	}
	f.add(cmd)
	how.flags(cmd.Flags(), true)
	var patch map[string]any
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if err := s.tokenIDs(args); err != nil {
			return err
		}
		if patch, err = f.body(s, cmd.Flags()); err == nil && len(patch) == 0 {
			err = s.usage("%s changes nothing: name what to change, such as --expires", cmd.CommandPath())
		}
		return err
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) (err error) {
		path := "/v1/tokens/" + args[0]
		var token client.Token
		if how.ifMatch == "" {
			if how.ifMatch, err = cl.Get(ctx, path, &token); err != nil {
				return err
			}
		}
		if _, err := cl.Patch(ctx, path, how.write(), patch, &token); err != nil {
			return err
		}
		return out.Print(token, func(w io.Writer) {
			verb := "changed"
			if how.dryRun {
				verb = "dry run, nothing was changed; it would be:"
			}
			fmt.Fprintf(w, "%s token %d for %s (%s)\n", verb, token.ID, token.Name, mayText(token, nil))
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

// tokenIDs checks that the arguments are ids of tokens.
func (s *shell) tokenIDs(args []string) error {
	for _, id := range args {
		if _, err := strconv.ParseInt(id, 10, 64); err != nil {
			return s.usage("%q is not the id of a token: `hubn token list` shows them", id)
		}
	}
	return nil
}

func (s *shell) tokenRevokeCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:     "revoke ID...",
		Short:   "Revoke tokens: they are refused from now on",
		Args:    s.arguments(1, -1, "the id of a token, as `hubn token list` shows it"),
		PreRunE: func(_ *cobra.Command, args []string) error { return s.tokenIDs(args) },
	}
	how.flags(cmd.Flags(), false)
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		var failed []error
		for _, id := range args {
			if _, err := cl.Delete(ctx, "/v1/tokens/"+id, how.write()); err != nil {
				failed = append(failed, err)
				continue
			}
			if !out.json() {
				verb := "revoked token"
				if how.dryRun {
					verb = "dry run, nothing was changed: would revoke token"
				}
				fmt.Fprintf(out.cmd.OutOrStdout(), "%s %s\n", verb, id)
			}
		}
		if len(failed) == 0 && out.json() {
			return out.Print(map[string]any{"revoked": args}, nil)
		}
		return errors.Join(failed...)
	})
}
