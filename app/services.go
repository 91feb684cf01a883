package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"hubn/app/embedded"
	"hubn/app/module"
	"hubn/registry/client"
	"hubn/schema"
	"hubn/schema/pooler"
)

// service is a part of the process that is up or not, as a module.
type service struct {
	name string
	run  func(ctx context.Context, ready func()) error
}

// Name is the service's name in the table of modules.
func (s *service) Name() string { return s.name }

// Run runs the service until ctx is done.
func (s *service) Run(ctx context.Context, ready func()) error { return s.run(ctx, ready) }

// Status says that it is up; whether it is, the supervisor knows.
func (s *service) Status() module.Status { return module.Status{Ready: true} }

func newPostgres(p *process) (module.Module, error) {
	return &service{namePostgres, func(ctx context.Context, ready func()) error {
		p.log.Log(ctx, p.embeddedLevel, "no database.url is configured: PostgreSQL runs embedded, as a child of this process", "data_dir", p.folder.dir)
		server, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{
			DataDir: p.folder.dir,
			BinDir:  p.config.Embedded.PostgresBinDir,
			User:    p.config.Embedded.User,
			Log:     p.log,
		})
		if err != nil {
			return err
		}
		p.postgres.Store(server)
		ready()
		select {
		case <-server.Done():
			return errors.Join(fmt.Errorf("the embedded PostgreSQL ended: %w", server.Err()), server.Stop())
		case <-ctx.Done():
			return server.Stop()
		}
	}}, nil
}

func newRedis(p *process) (module.Module, error) {
	return &service{nameRedis, func(ctx context.Context, ready func()) error {
		p.log.Log(ctx, p.embeddedLevel, "no redis.url is configured: Redis runs embedded, as a child of this process where a server program is installed", "data_dir", p.folder.dir)
		server, err := embedded.StartRedis(ctx, embedded.RedisOptions{
			DataDir: p.folder.dir,
			Program: p.config.Embedded.RedisProgram,
			User:    p.config.Embedded.User,
			Port:    p.folder.keptPort(nameRedis),
			Log:     p.log,
		})
		if err != nil {
			return err
		}
		p.redis.Store(server)
		if err := p.folder.keepPort(nameRedis, server.Port()); err != nil {
			return errors.Join(err, server.Stop())
		}
		ready()
		select {
		case <-server.Done():
			return errors.Join(fmt.Errorf("the embedded Redis ended: %w", server.Err()), server.Stop())
		case <-ctx.Done():
			return server.Stop()
		}
	}}, nil
}

// newSchema brings the Registry's schema up to date, or waits until somebody has.
func newSchema(p *process) (module.Module, error) {
	return &service{nameSchema, func(ctx context.Context, ready func()) error {
		conn, err := pooler.Connect(ctx, p.ownerURL())
		if err != nil {
			return fmt.Errorf("database.url: %w", err)
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		if err := p.migrate(ctx, conn); err != nil {
			return err
		}
		if err := conn.Close(ctx); err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return nil
	}}, nil
}

func (p *process) migrate(ctx context.Context, conn *pgx.Conn) error {
	if !p.config.Database.Migrate {
		pending, err := schema.Pending(ctx, conn, schema.Registry)
		if err == nil && pending > 0 {
			return fmt.Errorf("the database lacks %d migrations and database.migrate is off: run `hubn migrate`", pending)
		}
		return err
	}
	applied, err := schema.Migrate(ctx, conn, schema.Registry)
	for _, step := range applied {
		p.log.Debug("migrated", "schema", schema.Registry.Schema, "version", step.Version, "name", step.Name)
	}
	if len(applied) > 0 {
		p.log.Info("the database's schema was brought up to date", "schema", schema.Registry.Schema, "applied", len(applied))
	}
	return err
}

func newFront(p *process) (module.Module, error) {
	var cert *certificate
	if c := p.config.TLS; c.Certificate != "" {
		var err error
		if cert, err = loadCertificate(c.Certificate, c.Key, p.log, p.now); err != nil {
			return nil, err
		}
	}
	listening := func(bound net.Addr) { p.bound.Store(&bound) }
	return &front{address: p.listenAddress, listening: listening, certificate: cert, house: p.house, log: p.log}, nil
}

// listenAddress is where the front listens: where it listened before, what the
// configuration says, else loopback and the data folder's port.
func (p *process) listenAddress() (string, error) {
	if bound := p.bound.Load(); bound != nil {
		return (*bound).String(), nil
	}
	if p.config.Listen != "" {
		return p.config.Listen, nil
	}
	port, err := p.folder.port(nameHTTP)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// closeRedis closes the client that the modules shared. A module that did not
// stop in time may still ask for it.
func (p *process) closeRedis() {
	p.clientMu.Lock()
	defer p.clientMu.Unlock()
	if p.client != nil {
		_ = p.client.Close()
	}
}

// redisClient is the client that all modules of the process share.
func (p *process) redisClient() (redis.UniversalClient, error) {
	p.clientMu.Lock()
	defer p.clientMu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	options, err := redis.ParseURL(p.redisURL())
	if err != nil {
		// The text of the URL is not repeated: it may hold a password.
		return nil, errors.New("redis.url is not the URL of a Redis: write redis://HOST:PORT/DATABASE, or rediss:// for TLS")
	}
	// A context's deadline bounds a command: the outbox must not publish on a
	// lease that has run out.
	options.ContextTimeoutEnabled = true
	if p.embedsRedis() {
		// An embedded server that was started again may have another port.
		options.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			address := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.redis.Load().Port()))
			return (&net.Dialer{Timeout: options.DialTimeout}).DialContext(ctx, network, address)
		}
	}
	p.client = redis.NewClient(options)
	return p.client, nil
}

// embedsPostgres tells whether a module of this process uses the embedded PostgreSQL.
func (p *process) embedsPostgres() bool {
	for module, own := range map[string]string{nameRegistry: p.config.Registry.DatabaseURL, nameOutbox: p.config.Outbox.DatabaseURL} {
		if slices.Contains(p.modules, module) && p.config.databaseURL(own) == "" {
			return true
		}
	}
	return false
}

func (p *process) embedsRedis() bool { return p.config.Redis.URL == "" }

// database is the URL of a module's database, given its own setting; empty where
// the process has none.
func (p *process) database(own string) string {
	configured, running := p.config.databaseURL(own), p.postgres.Load()
	if configured != "" || running == nil {
		return configured
	}
	return running.URL(embedded.Owner, embedded.Database)
}

// ownerURL is the database as the role that owns the schema; empty where only
// other modules' databases are known.
func (p *process) ownerURL() string {
	if p.config.Database.URL != "" {
		return p.config.Database.URL
	}
	return p.database(p.config.Registry.DatabaseURL)
}

func (p *process) redisURL() string {
	if p.config.Redis.URL != "" {
		return p.config.Redis.URL
	}
	return p.redis.Load().URL()
}

// registryURL is where the modules of this process find the Registry: what is
// configured, else this process.
func (p *process) registryURL() string {
	if p.config.Registry.URL != "" {
		return p.config.Registry.URL
	}
	return p.ownURL()
}

// registryClient is a client of the Registry with the administrator's token.
func (p *process) registryClient() (*client.Client, error) {
	return client.New(client.Options{URL: p.registryURL(), Token: p.adminToken, CAFile: p.config.TLS.Certificate})
}

// ownURL is the base URL of this process, without a path.
func (p *process) ownURL() string {
	scheme := "http"
	if p.config.TLS.Certificate != "" {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: reachableAddress(*p.bound.Load())}).String()
}

// reachableAddress is an address that a client on this machine can use for a
// listener: loopback where that listens on every address.
func reachableAddress(bound net.Addr) string {
	tcp, ok := bound.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return bound.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
