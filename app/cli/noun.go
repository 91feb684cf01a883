package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hubn/app/problem"
	"hubn/registry/client"
)

// noun is one kind of object of the Registry and its commands: list, show, set,
// create, delete.
type noun[T any] struct {
	shell *shell
	// name and plural are how people speak of it; command is the word that they type.
	command_, name, plural, about, long string
	kind                                client.Kind
	path                                string // of the collection
	// argument says in words what names one of them.
	argument string
	// id is the object's place in the collection, of what the person typed.
	id func(ctx context.Context, c *client.Client, text string) (string, error)
	// key is the flag that create's argument stands for.
	key    string
	fields []field
	// implied completes what create and set were told.
	implied func(body map[string]any, creating bool)
	filters []filter
	head    []string
	row     func(T) []string
	show    func(io.Writer, T)
	// name of one object in messages.
	label func(T) string
}

// field is a flag of create and set, and the member of the body that it writes.
type field struct {
	flag, usage string
	// member is the path to the member: "routing.origin".
	member string
	many   bool // the flag may be repeated, and its values make a list
	truth  bool // a yes or no
	fixed  bool // of create only
	values []string
	// parse turns a value into what JSON carries; nil leaves the text.
	parse func(string) (any, error)
	// clear is the value that removes what is set; "" is none.
	clear string
}

// filter is a flag of list and its query parameter.
type filter struct {
	flag, usage string
	values      []string
	query       string // the parameter, where it is not named like the flag
}

func (n *noun[T]) command() *cobra.Command {
	return n.shell.group(n.command_, n.about, n.long,
		n.listCommand(), n.showCommand(), n.setCommand(), n.createCommand(), n.deleteCommand())
}

func (n *noun[T]) listCommand() *cobra.Command {
	limit, after := 0, ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List " + n.plural,
		Args:  n.shell.arguments(0, 0, ""),
	}
	flags := cmd.Flags()
	values, parameters := map[string]*string{}, map[string]string{}
	for _, f := range n.filters {
		parameters[f.flag] = cmp.Or(f.query, strings.ReplaceAll(f.flag, "-", "_"))
		values[f.flag] = flags.String(f.flag, "", f.usage)
		if f.values != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.flag, cobra.FixedCompletions(f.values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	flags.IntVar(&limit, "limit", 0, "at most so many; 0 for all")
	flags.StringVar(&after, "after", "", "go on where an earlier list ended, as it said")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if limit < 0 {
			return n.shell.usage("--limit %d is not possible: write 1 or more, or 0 for all", limit)
		}
		return nil
	}
	return n.shell.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		query := url.Values{}
		for name, value := range values {
			if flags.Changed(name) {
				query.Set(parameters[name], *value)
			}
		}
		l := &listing[T]{noun: n, out: out}
		return l.print(ctx, cl, query, limit, after)
	})
}

// listing prints a list page by page: a registry may hold a million prefixes.
type listing[T any] struct {
	noun *noun[T]
	out  *Output
	n    int
}

// pageLimit is how many objects one question asks for.
const pageLimit = 1000

func (l *listing[T]) print(ctx context.Context, cl *client.Client, query url.Values, limit int, after string) error {
	w := l.out.cmd.OutOrStdout()
	t := newTable(w)
	for first := true; ; first = false {
		size := pageLimit
		if limit > 0 {
			size = min(size, limit-l.n)
		}
		query.Set("limit", fmt.Sprint(size))
		if after != "" {
			query.Set("after", after)
		}
		page, err := client.ListPage[json.RawMessage](ctx, cl, l.noun.path, query)
		if err != nil {
			return err
		}
		if first && !l.out.json() {
			t.row(l.noun.head...)
		}
		if err := l.items(w, t, page.Items); err != nil {
			return err
		}
		t.end()
		after = page.Next
		if after == "" || limit > 0 && l.n >= limit {
			break
		}
	}
	if l.out.json() {
		end := "\n]"
		if l.n == 0 {
			end = "[]"
		}
		fmt.Fprintln(w, end)
	}
	if after != "" {
		l.out.remark("there are more: --after %s goes on here", after)
	}
	return nil
}

// items prints the objects of a page, as rows or as elements of one JSON array.
func (l *listing[T]) items(w io.Writer, t table, items []json.RawMessage) error {
	for _, raw := range items {
		if l.out.json() {
			separator := ",\n"
			if l.n == 0 {
				separator = "[\n"
			}
			fmt.Fprintf(w, "%s  %s", separator, raw)
			l.n++
			continue
		}
		var object T
		if err := json.Unmarshal(raw, &object); err != nil {
			return fmt.Errorf("the list holds %.100q: %w", raw, err)
		}
		t.row(l.noun.row(object)...)
		l.n++
	}
	return nil
}

// object is one object as the Registry answered it, and as it is understood here.
type object[T any] struct {
	raw   json.RawMessage
	value T
}

func (o *object[T]) UnmarshalJSON(b []byte) error {
	o.raw = append(o.raw[:0], b...)
	return json.Unmarshal(b, &o.value)
}

func (n *noun[T]) at(ctx context.Context, cl *client.Client, text string) (string, error) {
	id, err := n.id(ctx, cl, text)
	var answered *problem.Error
	switch {
	case err == nil:
	case errors.As(err, &answered) || client.ReasonOf(err) != "":
		return "", err
	default:
		return "", n.shell.Usage(err) // it was not even a question
	}
	return n.path + "/" + url.PathEscape(id), nil
}

func (n *noun[T]) showCommand() *cobra.Command {
	at := ""
	cmd := &cobra.Command{
		Use:   "show " + n.argumentWord(),
		Short: "Show one " + n.name,
		Args:  n.shell.arguments(1, 1, n.argument),
	}
	if slices.Contains(pastKinds, n.kind) {
		cmd.Flags().StringVar(&at, "at", "", "as it was at this time: 2026-12-01T10:00:00Z, \"2026-12-01 10:00\", or how long ago, such as 24h")
	}
	return n.shell.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		var o object[T]
		if at != "" {
			return n.showPast(ctx, cl, out, args[0], at)
		}
		path, err := n.at(ctx, cl, args[0])
		if err != nil {
			return err
		}
		if _, err := cl.Get(ctx, path, &o); err != nil {
			return err
		}
		return out.Print(o.raw, func(w io.Writer) { n.show(w, o.value) })
	})
}

func (n *noun[T]) argumentWord() string { return strings.ToUpper(strings.ReplaceAll(n.name, " ", "-")) }

// writing are the flags of every command that changes something.
type writing struct {
	reason, ifMatch string
	dryRun          bool
}

func (w *writing) flags(flags *pflag.FlagSet, altering bool) {
	flags.StringVar(&w.reason, "reason", "", "why, for the change log")
	flags.BoolVar(&w.dryRun, "dry-run", false, "change nothing, and show what would be")
	if altering {
		flags.StringVar(&w.ifMatch, "if-match", "", "change it only if this is still its ETag (its revision in quotes); else the one that it has now")
	}
}

func (w *writing) write() client.Write {
	return client.Write{Reason: w.reason, DryRun: w.dryRun, IfMatch: w.ifMatch}
}

func (n *noun[T]) createCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:   fmt.Sprintf("create [%s]", strings.ToUpper(strings.ReplaceAll(n.key, "-", "_"))),
		Short: "Create " + article(n.name),
		Args:  n.shell.arguments(0, 1, "one argument, which --"+n.key+" may give as well"),
	}
	f := n.bodyFlags(cmd, true)
	how.flags(cmd.Flags(), false)
	var body map[string]any
	cmd.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if len(args) == 1 {
			if cmd.Flags().Changed(n.key) {
				return n.shell.usage("give the %s once: as the argument or with --%s", n.key, n.key)
			}
			if err := cmd.Flags().Set(n.key, args[0]); err != nil {
				return n.shell.Usage(err)
			}
		}
		if !cmd.Flags().Changed(n.key) {
			return n.shell.usage("%s needs --%s", cmd.CommandPath(), n.key)
		}
		if body, err = f.body(); err != nil {
			return n.shell.Usage(err)
		}
		if n.implied != nil {
			n.implied(body, true)
		}
		return nil
	}
	return n.shell.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, _ []string) error {
		var o object[T]
		written, err := cl.Create(ctx, n.path, how.write(), body, &o)
		if err != nil {
			return err
		}
		return out.Print(o.raw, func(w io.Writer) { n.done(w, how, "created", n.label(o.value), written) })
	})
}

func (n *noun[T]) setCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:   "set " + n.argumentWord(),
		Short: "Change one " + n.name,
		Long:  "Change what the flags name, and leave the rest as it is.",
		Args:  n.shell.arguments(1, 1, n.argument),
	}
	f := n.bodyFlags(cmd, false)
	how.flags(cmd.Flags(), true)
	var patch map[string]any
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		if patch, err = f.body(); err != nil {
			return n.shell.Usage(err)
		}
		if len(patch) == 0 {
			return n.shell.usage("%s changes nothing: name what to change, such as --%s", cmd.CommandPath(), f.fields[0].flag)
		}
		if n.implied != nil {
			n.implied(patch, false)
		}
		return nil
	}
	return n.shell.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		path, err := n.at(ctx, cl, args[0])
		if err != nil {
			return err
		}
		var o object[T]
		if how.ifMatch == "" {
			if how.ifMatch, err = cl.Get(ctx, path, &o); err != nil {
				return err
			}
		}
		written, err := cl.Patch(ctx, path, how.write(), patch, &o)
		if err != nil {
			return err
		}
		return out.Print(o.raw, func(w io.Writer) { n.done(w, how, "changed", n.label(o.value), written) })
	})
}

// deleted is what deleting one object prints as JSON.
type deleted struct {
	Deleted  string            `json:"deleted"`
	DryRun   bool              `json:"dry_run,omitempty"`
	Produced []client.Produced `json:"produced"`
}

func (n *noun[T]) deleteCommand() *cobra.Command {
	var how writing
	cmd := &cobra.Command{
		Use:   "delete " + n.argumentWord() + "...",
		Short: "Delete " + n.plural,
		Args:  n.shell.arguments(1, -1, n.argument),
	}
	how.flags(cmd.Flags(), true)
	return n.shell.asking(cmd, func(ctx context.Context, cl *client.Client, out *Output, args []string) error {
		if how.ifMatch != "" && len(args) > 1 {
			return n.shell.usage("--if-match is the ETag of one %s, and %d are named", n.name, len(args))
		}
		gone, failed := []deleted{}, []error{}
		for _, text := range args {
			one, err := n.delete(ctx, cl, out, how, text)
			if err != nil {
				failed = append(failed, explain(cl.URL(), err))
				continue
			}
			gone = append(gone, one)
		}
		if out.json() {
			var err error
			if len(args) == 1 && len(gone) == 1 {
				err = out.Print(gone[0], nil)
			} else if len(args) > 1 {
				err = out.Print(gone, nil)
			}
			failed = append(failed, err)
		}
		if len(failed) == 1 {
			return failed[0]
		}
		return errors.Join(failed...)
	})
}

func (n *noun[T]) delete(ctx context.Context, cl *client.Client, out *Output, how writing, text string) (deleted, error) {
	path, err := n.at(ctx, cl, text)
	if err != nil {
		return deleted{}, err
	}
	var o object[T]
	etag, err := cl.Get(ctx, path, &o)
	if err != nil {
		return deleted{}, err
	}
	if how.ifMatch == "" {
		how.ifMatch = etag
	}
	written, err := cl.Delete(ctx, path, how.write())
	if err != nil {
		return deleted{}, err
	}
	if !out.json() {
		n.done(out.cmd.OutOrStdout(), how, "deleted", n.label(o.value), written)
	}
	return deleted{n.label(o.value), how.dryRun, written.Produced}, nil
}

// done says what a change did, and which versions it made.
func (n *noun[T]) done(w io.Writer, how writing, verb, label string, written client.Written) {
	if how.dryRun {
		fmt.Fprintf(w, "dry run, nothing was changed: %s would be %s", label, verb)
	} else {
		fmt.Fprintf(w, "%s %s", verb, label)
	}
	for i, p := range written.Produced {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(w, "%s%s version %d", separator, p.Resource, p.Version)
	}
	fmt.Fprintln(w)
}

func article(noun string) string {
	if strings.ContainsRune("aeiouAEIOU", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
