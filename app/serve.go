package app

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"hubn/app/cli"
)

// serverFlags are the flags of the commands that read the configuration.
type serverFlags struct {
	config    string
	dataDir   string
	listen    string
	modules   []string
	logLevel  string
	logFormat string
}

// addConfigFlags adds the flags of everything that reads the configuration.
func (f *serverFlags) addConfigFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.config, "config", "c", os.Getenv("HUBN_CONFIG"), "configuration file in YAML (HUBN_CONFIG)")
	cmd.Flags().StringVar(&f.dataDir, "data-dir", "", "folder of the embedded services, ports and tokens (HUBN_DATA_DIR; default .hubn)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "", "auto, text or json")
}

// addServerFlags adds the flags of a process that runs modules.
func (f *serverFlags) addServerFlags(cmd *cobra.Command) {
	f.addConfigFlags(cmd)
	cmd.Flags().StringVar(&f.listen, "listen", "", "HOST:PORT of the HTTP listener (HUBN_LISTEN)")
	cmd.Flags().StringSliceVar(&f.modules, "modules", nil, "modules to run, separated by commas (default: all)")
}

// load is the configuration: the file over base, the environment over that, the
// flags over everything.
func (f *serverFlags) load(base Config) (Config, error) {
	config, err := LoadConfig(base, f.config, os.LookupEnv)
	if err != nil {
		return Config{}, err
	}
	for _, o := range []struct {
		flag    string
		setting *string
	}{
		{f.dataDir, &config.DataDir},
		{f.listen, &config.Listen},
		{f.logLevel, &config.Log.Level},
		{f.logFormat, &config.Log.Format},
	} {
		if o.flag != "" {
			*o.setting = o.flag
		}
	}
	return config, config.validate()
}

func serveCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run modules",
		Long: `Run the modules that --modules names, or all of them, until a signal. A process
without database.url or redis.url runs PostgreSQL and Redis embedded, and says so.`,
		Args: noArguments,
	}
	f.addServerFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := f.load(DefaultConfig())
		if err != nil {
			return err
		}
		return serve(cmd, config, f.modules, slog.LevelWarn, func(context.Context, *process) error { return nil })
	}
	return cmd
}

// serve runs modules until the command's context is done; prepare is called
// when all of them are ready, before the endpoints are written. It says that
// services run embedded at a level of the log.
func serve(cmd *cobra.Command, config Config, names []string, embeddedLevel slog.Level, prepare func(context.Context, *process) error) error {
	modules, err := selectModules(names)
	if err != nil {
		return usageError{err}
	}
	if err := config.validateSplit(modules); err != nil {
		return err
	}
	log, err := newLogger(config.Log, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	p, err := newProcess(config, modules, log)
	if err != nil {
		return err
	}
	p.embeddedLevel = embeddedLevel
	return p.run(cmd.Context(), func(ctx context.Context) error {
		if err := prepare(ctx, p); err != nil {
			return err
		}
		if err := p.folder.writeEndpoints(p.endpoints()); err != nil {
			return err
		}
		log.Info("ready", "url", p.ownURL(), "modules", modules, "endpoints", p.folder.path(cli.EndpointsFile))
		return nil
	})
}
