package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"hubn/app/cli"
	"hubn/app/embedded"
	"hubn/schema"
	"hubn/schema/pooler"
)

// The results of a check.
const (
	checkOK      = "ok"
	checkWarning = "warning"
	checkFailed  = "failed"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail"`
}

// doctor looks at everything that a process needs, and keeps what it finds.
type doctor struct {
	config   Config
	running  cli.Endpoints // of a process that runs on the data folder
	findings []finding
}

// doctorTimeout bounds all checks together; each waits for one server at most.
const doctorTimeout = 20 * time.Second

func doctorCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a process needs, and say what is missing",
		Long:  "Check the configuration, the services and the schema, without changing anything. The exit status is 1 when something failed.",
		Args:  noArguments,
	}
	f.addConfigFlags(cmd)
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := f.load(DefaultConfig())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
		defer cancel()
		d := &doctor{config: config}
		d.examine(ctx)
		if err := output.Print(d.findings, d.print); err != nil {
			return err
		}
		if d.failed() {
			return errSaid
		}
		return nil
	}
	return cmd
}

func (d *doctor) examine(ctx context.Context) {
	d.say("configuration", nil, "every setting can be")
	d.dataFolder()
	d.postgres(ctx)
	d.redis(ctx)
	d.tls()
	d.process(ctx)
}

// say records a check: failed with its error, else ok.
func (d *doctor) say(check string, err error, format string, args ...any) {
	if err != nil {
		d.findings = append(d.findings, finding{check, checkFailed, err.Error()})
		return
	}
	d.findings = append(d.findings, finding{check, checkOK, fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(check, format string, args ...any) {
	d.findings = append(d.findings, finding{check, checkWarning, fmt.Sprintf(format, args...)})
}

func (d *doctor) failed() bool {
	for _, f := range d.findings {
		if f.Result == checkFailed {
			return true
		}
	}
	return false
}

func (d *doctor) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tRESULT\tDETAIL")
	for _, f := range d.findings {
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Check, f.Result, strings.ReplaceAll(f.Detail, "\n", "; "))
	}
	_ = t.Flush()
}

func (d *doctor) dataFolder() {
	info, err := os.Stat(d.config.DataDir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.say("data folder", nil, "%s is made at the first start", d.config.DataDir)
		return
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is not a folder: remove it, or name another with --data-dir", d.config.DataDir)
	case err == nil:
		err = syscall.Access(d.config.DataDir, 2|1) // W_OK|X_OK
	}
	d.say("data folder", err, "%s", d.config.DataDir)
	d.running, _ = cli.ReadEndpoints(d.config.DataDir) // none runs: checked below
}

// postgres checks the configured database, or what the embedded one needs.
func (d *doctor) postgres(ctx context.Context) {
	url := d.config.databaseURL(d.config.Registry.DatabaseURL)
	if url == "" {
		bindir, err := embedded.FindPostgresIn(d.config.Embedded.PostgresBinDir)
		d.say("embedded PostgreSQL", err, "programs in %s", bindir)
		_, err = embedded.CredentialOf(d.config.Embedded.User)
		d.say("embedded PostgreSQL's user", err, "exists")
		url = d.running.DatabaseURL
	}
	if url == "" {
		d.say("database", nil, "not running; it is made and migrated at the first start")
		return
	}
	conn, err := pooler.Connect(ctx, url)
	if err != nil {
		d.say("database", err, "")
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	d.database(ctx, conn)
	d.way(ctx, "registry", cmp.Or(d.config.databaseURL(d.config.Registry.DatabaseURL), url), "hubn_registry")
	d.way(ctx, "outbox", cmp.Or(d.config.databaseURL(d.config.Outbox.DatabaseURL), url), "hubn_outbox")
}

// way says how a module reaches PostgreSQL. Through a pooler it must connect as
// its own role.
func (d *doctor) way(ctx context.Context, module, url, role string) {
	check := "database of the " + module
	conn, err := pooler.Connect(ctx, url)
	if err != nil {
		d.say(check, err, "")
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	pooled, err := pooler.Between(ctx, conn)
	user := conn.Config().User
	switch {
	case err != nil || !pooled:
		d.say(check, err, "reached without a pooler")
	case user != role:
		d.say(check, pooler.RoleError(module+".database_url", user, role), "")
	default:
		d.say(check, nil, "reached through a pooler, as %s", role)
	}
}

// maxClockDifference is what NTP keeps two machines well below. Leases are
// computed by the database's clock alone; certificates and logs are not.
const maxClockDifference = 2 * time.Second

func (d *doctor) database(ctx context.Context, conn *pgx.Conn) {
	const query = `
		SELECT current_setting('server_version'),
		       current_setting('server_version_num')::integer,
		       clock_timestamp(),
		       pg_is_in_recovery(),
		       EXISTS (SELECT FROM pg_available_extensions WHERE name = 'btree_gist')`
	var (
		version       string
		number        int
		clock         time.Time
		standby, gist bool
	)
	if err := conn.QueryRow(ctx, query).Scan(&version, &number, &clock, &standby, &gist); err != nil {
		d.say("database", err, "")
		return
	}
	difference := time.Since(clock).Abs()
	switch {
	case number < 150000:
		d.say("database", fmt.Errorf("PostgreSQL %s: HubN needs 15 or newer", version), "")
	case standby:
		d.say("database", errors.New("it is a standby: name the primary in database.url"), "")
	case !gist:
		d.say("database", errors.New("the extension btree_gist is not installed: install the server's contrib package"), "")
	default:
		d.say("database", nil, "PostgreSQL %s", version)
	}
	if difference > maxClockDifference {
		d.warn("clock", "this machine and the database differ by %s: run NTP on both", difference.Round(time.Millisecond))
	} else {
		d.say("clock", nil, "within %s of the database's", maxClockDifference)
	}
	pending, err := schema.Pending(ctx, conn, schema.Registry)
	if err == nil && pending > 0 {
		err = fmt.Errorf("lacks %d steps: run `hubn migrate`", pending)
	}
	d.say("schema "+schema.Registry.Schema, err, "up to date")
}

// redis checks the configured Redis, or the one of the process that runs.
func (d *doctor) redis(ctx context.Context) {
	url := d.config.Redis.URL
	if url == "" {
		url = d.running.RedisURL
	}
	if url == "" {
		d.say("redis", nil, "not running; it runs embedded at the first start")
		return
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		d.say("redis", errors.New("redis.url is not the URL of a Redis: write redis://HOST:PORT/DATABASE"), "")
		return
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		d.say("redis", err, "")
		return
	}
	d.say("redis", nil, "answers")
	d.redisSetting(ctx, client, "maxmemory-policy", "noeviction", "an evicted stream or fence is a lost event")
	d.redisSetting(ctx, client, "appendonly", "yes", "a restart forgets what was published, and every consumer scans again")
}

func (d *doctor) redisSetting(ctx context.Context, client *redis.Client, name, want, why string) {
	got, err := client.ConfigGet(ctx, name).Result()
	switch {
	case err != nil:
		d.warn("redis "+name, "cannot be read (%v): see to it that it is %s", err, want)
	case got[name] != want:
		d.warn("redis "+name, "is %q, should be %s: %s", got[name], want, why)
	default:
		d.say("redis "+name, nil, "%s", want)
	}
}

// certificateWarning is how long before its end a certificate is worth a
// warning: renewals usually run 30 days ahead.
const certificateWarning = 14 * 24 * time.Hour

func (d *doctor) tls() {
	c := d.config.TLS
	if c.Certificate == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		d.say("tls", err, "")
		return
	}
	left := time.Until(pair.Leaf.NotAfter)
	switch {
	case left < 0:
		d.say("tls", fmt.Errorf("%s ended on %s: renew it", c.Certificate, pair.Leaf.NotAfter.Format(time.DateOnly)), "")
	case left < certificateWarning:
		d.warn("tls", "%s ends on %s: renew it", c.Certificate, pair.Leaf.NotAfter.Format(time.DateOnly))
	default:
		d.say("tls", nil, "valid until %s", pair.Leaf.NotAfter.Format(time.DateOnly))
	}
}

// process checks the process that runs, or whether one could listen.
func (d *doctor) process(ctx context.Context) {
	if d.running.RegistryURL == "" {
		listener, err := net.Listen("tcp", d.config.Listen)
		if err == nil {
			_ = listener.Close()
		}
		d.say("listener", err, "%s is free", d.config.Listen)
		return
	}
	var st ProcessStatus
	target, err := cli.Local(d.config.DataDir, "")
	if err == nil {
		err = ask(ctx, target, "/status", &st)
	}
	if err != nil {
		d.say("process", err, "")
		return
	}
	for _, m := range st.Modules {
		if !m.Ready {
			d.say("module "+m.Name, errors.New(m.Reason), "")
			continue
		}
		d.say("module "+m.Name, nil, "%s", strings.TrimSpace("ready "+m.Reason))
	}
}
