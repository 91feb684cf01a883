package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hubn/registry/client"
)

// allocationCommands are what is done with the space of prefixes.
func (s *shell) allocationCommands() []*cobra.Command {
	return []*cobra.Command{
		s.nextCommand(), s.splitCommand(), s.mergeCommand(), s.resizeCommand(), s.moveCommand(),
		s.freeCommand(), s.utilisationCommand(), s.quarantineCommand(),
	}
}

// prefixCommand is the noun's commands and those on its space.
func (s *shell) prefixCommand() *cobra.Command {
	cmd := s.prefix().command()
	cmd.AddCommand(s.allocationCommands()...)
	return cmd
}

const poolArgument = "a pool: a container or an allocation, by its prefix or id"

func (s *shell) nextCommand() *cobra.Command {
	n := s.prefix()
	var how writing
	length, count, key := 0, 1, ""
	cmd := &cobra.Command{
		Use:   "next POOL --length N",
		Short: "Take the first free prefixes of a length in a pool",
		Long: `Take the first free prefixes of a length in a pool, which is a container or an
allocation. Free is what no prefix and no anycast allocation right inside the pool
holds, and what is not in quarantine.`,
		Args: s.arguments(1, 1, poolArgument),
	}
	var settings []field
	for _, f := range n.fields {
		if f.member != "prefix" {
			settings = append(settings, f)
		}
	}
	n.fields = settings
	f := n.bodyFlags(cmd, true)
	how.flags(cmd.Flags(), false)
	cmd.Flags().IntVar(&length, "length", 0, "the length of the prefixes")
	cmd.Flags().IntVar(&count, "count", 1, "how many of them: all or none")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "a text of your own: the same command with it takes nothing twice")
	var body map[string]any
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if !cmd.Flags().Changed("length") {
			return s.usage("%s needs --length, such as --length 24", cmd.CommandPath())
		}
		if body, err = f.body(); err != nil {
			return s.Usage(err)
		}
		implyPrefix(body, true)
		body["length"], body["count"] = length, count
		return nil
	}
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		pool, err := s.prefixArgument(ctx, cl, args[0])
		if err != nil {
			return err
		}
		w := how.write()
		w.IdempotencyKey = key
		made, written, err := cl.NextFree(ctx, pool, w, body)
		if err != nil {
			return err
		}
		return out.Print(made.Items, func(w io.Writer) { n.several(w, how, "created", made.Items, written) })
	})
}

// several says what a change did to several prefixes, a line for each.
func (n *noun[T]) several(w io.Writer, how writing, verb string, items []T, written client.Written) {
	for i, item := range items {
		if i > 0 {
			written.Produced = nil // said once
		}
		n.done(w, how, verb, n.label(item), written)
	}
}

// prefixArgument is how the API names the prefix that a person typed.
func (s *shell) prefixArgument(ctx context.Context, cl *client.Client, text string) (string, error) {
	id, err := prefixID(ctx, cl, text)
	if err != nil {
		return "", s.Usage(err)
	}
	return id, nil
}

// altering is a command that changes the place of one prefix. It sends the ETag that
// the prefix has now, unless told another.
func (s *shell) altering(cmd *cobra.Command, f func(ctx context.Context, cl *client.Client, prefix string, w client.Write, args []string) ([]client.Prefix, client.Written, error), verb string) *cobra.Command {
	var how writing
	how.flags(cmd.Flags(), true)
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		prefix, err := s.prefixArgument(ctx, cl, args[0])
		if err != nil {
			return err
		}
		if how.ifMatch == "" {
			if how.ifMatch, err = cl.Get(ctx, "/v1/prefixes/"+url.PathEscape(prefix), nil); err != nil {
				return err
			}
		}
		items, written, err := f(ctx, cl, prefix, how.write(), args[1:])
		if err != nil {
			return err
		}
		var v any = items
		if verb != "split into" {
			v = items[0]
		}
		return out.Print(v, func(w io.Writer) { s.prefix().several(w, how, verb, items, written) })
	})
}

func (s *shell) splitCommand() *cobra.Command {
	length := 0
	cmd := &cobra.Command{
		Use:   "split PREFIX --length N",
		Short: "Divide a prefix into parts of a length",
		Long:  "Divide a prefix into parts of a length. It becomes the first part; the others are new and have its settings.",
		Args:  s.arguments(1, 1, "a prefix: itself, such as 192.0.2.0/24, or its id"),
	}
	cmd.Flags().IntVar(&length, "length", 0, "the length of the parts")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if length == 0 {
			return s.usage("%s needs --length, such as --length 25", cmd.CommandPath())
		}
		return nil
	}
	return s.altering(cmd, func(ctx context.Context, cl *client.Client, prefix string, w client.Write, _ []string) ([]client.Prefix, client.Written, error) {
		made, written, err := cl.Split(ctx, prefix, w, length)
		return made.Items, written, err
	}, "split into")
}

func (s *shell) mergeCommand() *cobra.Command {
	return s.altering(&cobra.Command{
		Use:   "merge PREFIX OTHER...",
		Short: "Make one prefix of several that lie side by side",
		Long:  "Make one prefix of several that lie side by side and have the same settings. The first keeps its id; the others are deleted.",
		Args:  s.arguments(2, -1, "a prefix and at least one other"),
	}, func(ctx context.Context, cl *client.Client, prefix string, w client.Write, args []string) ([]client.Prefix, client.Written, error) {
		others := make([]string, len(args))
		for i, arg := range args {
			var err error
			if others[i], err = s.prefixArgument(ctx, cl, arg); err != nil {
				return nil, client.Written{}, err
			}
		}
		made, written, err := cl.Merge(ctx, prefix, w, others)
		return []client.Prefix{made}, written, err
	}, "merged into")
}

func (s *shell) resizeCommand() *cobra.Command {
	return s.altering(&cobra.Command{
		Use:   "resize PREFIX NEW",
		Short: "Make a prefix larger or smaller",
		Long: `Make a prefix larger or smaller. NEW is the prefix that it becomes, or its length
such as /23. It keeps its id and its settings.`,
		Args: s.arguments(2, 2, "a prefix, and what it becomes: a prefix, or a length such as /23"),
	}, func(ctx context.Context, cl *client.Client, prefix string, w client.Write, args []string) ([]client.Prefix, client.Written, error) {
		if text, ok := strings.CutPrefix(args[0], "/"); ok {
			length, err := strconv.Atoi(text)
			if err != nil {
				return nil, client.Written{}, s.usage("%q is not a length: write /23", args[0])
			}
			made, written, err := cl.ResizeTo(ctx, prefix, w, length)
			return []client.Prefix{made}, written, err
		}
		to, err := s.newPrefix(args[0])
		if err != nil {
			return nil, client.Written{}, err
		}
		made, written, err := cl.Resize(ctx, prefix, w, to)
		return []client.Prefix{made}, written, err
	}, "resized to")
}

func (s *shell) newPrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, s.usage("%q is not a prefix: write 192.0.2.0/24 or 2001:db8::/32", text)
	case p != p.Masked():
		return p, s.usage("%s has host bits set: the prefix is %s", p, p.Masked())
	}
	return p, nil
}

func (s *shell) moveCommand() *cobra.Command {
	into := ""
	cmd := &cobra.Command{
		Use:   "move PREFIX [NEW]",
		Short: "Give a prefix other addresses",
		Long: `Give a prefix other addresses: those of NEW, or with --into the first free ones of
its size in a pool. It keeps its id and its settings.`,
		Args: s.arguments(1, 2, "a prefix, and the prefix that it becomes"),
	}
	cmd.Flags().StringVar(&into, "into", "", "the pool in which it finds room: its prefix or id")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 2) == (into != "") {
			return s.usage("%s needs either the prefix that it becomes or --into POOL", cmd.CommandPath())
		}
		return nil
	}
	return s.altering(cmd, func(ctx context.Context, cl *client.Client, prefix string, w client.Write, args []string) ([]client.Prefix, client.Written, error) {
		if into != "" {
			pool, err := s.prefixArgument(ctx, cl, into)
			if err != nil {
				return nil, client.Written{}, err
			}
			made, written, err := cl.MoveInto(ctx, prefix, w, pool)
			return []client.Prefix{made}, written, err
		}
		to, err := s.newPrefix(args[0])
		if err != nil {
			return nil, client.Written{}, err
		}
		made, written, err := cl.Move(ctx, prefix, w, to)
		return []client.Prefix{made}, written, err
	}, "moved to")
}

func (s *shell) freeCommand() *cobra.Command {
	length, limit := 0, 0
	cmd := &cobra.Command{
		Use:   "free POOL",
		Short: "List the free blocks right inside a prefix",
		Args:  s.arguments(1, 1, poolArgument),
	}
	cmd.Flags().IntVar(&length, "length", 0, "only those with room for a prefix of this length")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many; 0 for all")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		pool, err := s.prefixArgument(ctx, cl, args[0])
		if err != nil {
			return err
		}
		blocks, after := []client.FreeBlock{}, ""
		for {
			size := pageLimit
			if limit > 0 {
				size = min(size, limit-len(blocks))
			}
			page, err := cl.FreeSpace(ctx, pool, length, after, size)
			if err != nil {
				return err
			}
			blocks, after = append(blocks, page.Items...), page.Next
			if after == "" || limit > 0 && len(blocks) >= limit {
				break
			}
		}
		if after != "" {
			out.remark("there are more: --limit 0 shows all")
		}
		return out.Print(blocks, func(w io.Writer) {
			t := newTable(w, "PREFIX", "ADDRESSES")
			for _, b := range blocks {
				t.row(b.Prefix.String(), b.Addresses)
			}
			t.end()
		})
	})
}

func (s *shell) utilisationCommand() *cobra.Command {
	within, organisation := "", ""
	cmd := &cobra.Command{
		Use:   "utilisation [POOL...]",
		Short: "Show how much of prefixes is taken; of every pool if none is named",
		Args:  s.arguments(0, -1, poolArgument),
	}
	cmd.Flags().StringVar(&within, "within", "", "without POOL: only pools inside this prefix")
	cmd.Flags().StringVar(&organisation, "organisation", "", "without POOL: only those that this organisation holds")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		all := []client.Utilisation{}
		for _, arg := range args {
			pool, err := s.prefixArgument(ctx, cl, arg)
			if err != nil {
				return err
			}
			u, err := cl.Utilisation(ctx, pool)
			if err != nil {
				return err
			}
			all = append(all, u)
		}
		if len(args) == 0 {
			query := url.Values{}
			for name, value := range map[string]string{"within": within, "organisation": organisation} {
				if value != "" {
					query.Set(name, value)
				}
			}
			for u, err := range client.List[client.Utilisation](ctx, cl, "/v1/utilisation", query) {
				if err != nil {
					return err
				}
				all = append(all, u)
			}
		}
		return out.Print(all, func(w io.Writer) {
			t := newTable(w, "PREFIX", "KIND", "CHILDREN", "USED", "USED %", "QUARANTINED", "FREE", "LARGEST")
			for _, u := range all {
				largest := ""
				if u.LargestFree != nil {
					largest = fmt.Sprintf("/%d", *u.LargestFree)
				}
				t.row(u.Prefix.String(), u.Kind, strconv.Itoa(u.Children), short(u.Used), fmt.Sprintf("%.1f", u.UsedPercent),
					short(u.Quarantined), short(u.Free), largest)
			}
			t.end()
		})
	})
}

// short is a number of addresses that fits a column: those of IPv6 have 39 digits.
func short(digits string) string {
	if len(digits) <= 12 {
		return digits
	}
	return fmt.Sprintf("%s.%se%d", digits[:1], digits[1:3], len(digits)-1)
}

func (s *shell) quarantineCommand() *cobra.Command {
	return s.group("quarantine", "Space that waits for modules to withdraw what they derived",
		`Space that a prefix or an anycast allocation gave up is not offered until every
module that was registered by then has reported its artefacts withdrawn.`,
		s.quarantineListCommand(), s.quarantineReleaseCommand())
}

func (s *shell) quarantineListCommand() *cobra.Command {
	within := ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the space in quarantine and who is waited for",
		Args:  s.arguments(0, 0, ""),
	}
	cmd.Flags().StringVar(&within, "within", "", "only what lies in this prefix")
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		query := url.Values{}
		if within != "" {
			query.Set("within", within)
		}
		all := []client.Quarantine{}
		for q, err := range client.List[client.Quarantine](ctx, cl, "/v1/quarantine", query) {
			if err != nil {
				return err
			}
			all = append(all, q)
		}
		return out.Print(all, func(w io.Writer) {
			t := newTable(w, "ID", "PREFIX", "OF", "SINCE", "WAITING FOR")
			for _, q := range all {
				t.row(number(q.ID), q.Prefix.String(), q.Resource.String(), moment(q.Since), strings.Join(q.Waiting, ", "))
			}
			t.end()
		})
	})
}

func (s *shell) quarantineReleaseCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:   "release ID...",
		Short: "Offer space again although modules have not reported",
		Args:  s.arguments(1, -1, "the id of a quarantine: `hubn prefix quarantine list` shows them"),
	}
	how.flags(cmd.Flags(), false)
	return s.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		released := []int64{}
		for _, arg := range args {
			id, err := strconv.ParseInt(arg, 10, 64)
			if err != nil {
				return s.usage("%q is not the id of a quarantine: `hubn prefix quarantine list` shows them", arg)
			}
			if err := cl.ReleaseQuarantine(ctx, id, how.write()); err != nil {
				return err
			}
			released = append(released, id)
		}
		return out.Print(map[string]any{"released": released, "dry_run": how.dryRun}, func(w io.Writer) {
			for _, id := range released {
				if how.dryRun {
					fmt.Fprintf(w, "dry run, nothing was changed: quarantine %d would be released\n", id)
					continue
				}
				fmt.Fprintf(w, "released quarantine %d\n", id)
			}
		})
	})
}
