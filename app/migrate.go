package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"hubn/app/cli"
	"hubn/app/embedded"
	"hubn/schema"
	"hubn/schema/pooler"
)

// migration is what `hubn migrate` did, or would do, to one schema.
type migration struct {
	Schema  string   `json:"schema"`
	Applied []string `json:"applied"`
	// Pending is how many files the database lacks.
	Pending int `json:"pending"`
}

func migrateCommand() *cobra.Command {
	var f serverFlags
	check := false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database's schema up to date",
		Long: `Bring the schema of database.url up to date, or that of the embedded PostgreSQL,
which is started for it. Every step is one transaction; what is up to date is left
as it is. With --check nothing changes, and the exit status is 1 when steps are
missing.`,
		Args: noArguments,
	}
	f.addConfigFlags(cmd)
	cmd.Flags().BoolVar(&check, "check", false, "only say how many steps the database lacks")
	output := cli.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := f.load(DefaultConfig())
		if err != nil {
			return err
		}
		log, err := newLogger(config.Log, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		var done migration
		err = withOwner(cmd.Context(), config, log, func(ctx context.Context, conn *pgx.Conn) error {
			done, err = migrateRegistry(ctx, conn, check)
			return err
		})
		if err != nil {
			return err
		}
		if err := output.Print(done, func(w io.Writer) { printMigration(w, done) }); err != nil {
			return err
		}
		if done.Pending > 0 {
			return errSaid
		}
		return nil
	}
	return cmd
}

func migrateRegistry(ctx context.Context, conn *pgx.Conn, check bool) (migration, error) {
	done := migration{Schema: schema.Registry.Schema, Applied: []string{}}
	if check {
		var err error
		done.Pending, err = schema.Pending(ctx, conn, schema.Registry)
		return done, err
	}
	applied, err := schema.Migrate(ctx, conn, schema.Registry)
	for _, step := range applied {
		done.Applied = append(done.Applied, fmt.Sprintf("%04d_%s", step.Version, step.Name))
	}
	return done, err
}

func printMigration(w io.Writer, m migration) {
	for _, step := range m.Applied {
		fmt.Fprintf(w, "schema %s: applied %s\n", m.Schema, step)
	}
	switch {
	case m.Pending > 0:
		fmt.Fprintf(w, "schema %s lacks %d steps: run `hubn migrate`\n", m.Schema, m.Pending)
	case len(m.Applied) == 0:
		fmt.Fprintf(w, "schema %s is up to date\n", m.Schema)
	}
}

// withOwner calls do with a connection of the role that owns the schema. The
// embedded PostgreSQL is started for it, unless a process runs it already.
func withOwner(ctx context.Context, config Config, log *slog.Logger, do func(context.Context, *pgx.Conn) error) (err error) {
	url := config.Database.URL
	if url == "" {
		url = config.Registry.DatabaseURL
	}
	if url == "" {
		if running, err := cli.ReadEndpoints(config.DataDir); err == nil {
			url = running.DatabaseURL
		}
	}
	if url == "" {
		server, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{
			DataDir: config.DataDir, BinDir: config.Embedded.PostgresBinDir, User: config.Embedded.User, Log: log,
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		url = server.URL(embedded.Owner, embedded.Database)
	}
	conn, err := pooler.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("database.url: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(ctx, conn)
}
