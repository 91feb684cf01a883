package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"hubn/app/cli"
	"hubn/app/embedded"
	"hubn/app/module"
	"hubn/app/seal"
	"hubn/registry"
)

// process is one running hubn: what it was told, its data folder, and the units
// that the supervisor runs.
type process struct {
	config  Config
	modules []string
	log     *slog.Logger
	now     func() time.Time
	// embeddedLevel is how loudly the use of embedded services is said: they are
	// the point of dev, and worth a warning in serve.
	embeddedLevel slog.Level

	folder     *folder
	adminToken string
	keyring    *seal.Keyring // of modules that seal secrets; nil where none runs
	house      *house
	supervisor *supervisor

	// What the services are, once they are up.
	postgres atomic.Pointer[embedded.Postgres]
	redis    atomic.Pointer[embedded.Redis]
	bound    atomic.Pointer[net.Addr]

	clientMu sync.Mutex
	client   redis.UniversalClient
}

// newProcess takes the data folder and prepares everything; nothing runs yet.
func newProcess(config Config, modules []string, log *slog.Logger) (*process, error) {
	p := &process{config: config, modules: modules, log: log, now: time.Now}
	quietRedis(log)
	var err error
	if p.folder, err = openFolder(config.DataDir); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		p.folder.close()
		return nil, err
	}
	return p, nil
}

func (p *process) prepare() error {
	tokens, err := p.readTokens()
	if err != nil {
		return err
	}
	if slices.Contains(p.modules, nameRegistry) {
		if p.keyring, err = p.sealKeys(); err != nil {
			return err
		}
	}
	units := p.units()
	p.supervisor = newSupervisor(units)
	p.house = &house{units: units, started: p.now(), tokens: tokens, metrics: prometheus.NewRegistry()}
	p.house.metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		unitCollector(units),
	)
	return nil
}

// units are the rows of the table that this process runs.
func (p *process) units() []*unit {
	byName := map[string]*unit{}
	var units []*unit
	for _, e := range table {
		if !e.included(p) {
			continue
		}
		var needs []*unit
		for _, name := range e.needs {
			if need, ok := byName[name]; ok {
				needs = append(needs, need)
			}
		}
		u := newUnit(e.name, p.log, nil, needs...)
		u.construct = func() (module.Module, error) { return e.construct(p) }
		u.vital = p.vital(e.name)
		byName[e.name] = u
		units = append(units, u)
	}
	return units
}

// moduleLog is the log of a module.
func (p *process) moduleLog(name string) *slog.Logger { return p.log.With("module", name) }

// freshMetrics is where a new instance of a module registers its metrics.
func (p *process) freshMetrics(name string) *prometheus.Registry {
	fresh := prometheus.NewRegistry()
	for _, u := range p.supervisor.units {
		if u.name == name {
			u.metrics.Store(fresh)
		}
	}
	return fresh
}

// vital tells whether the process ends when a unit cannot begin: retrying cannot
// help where no other machine is involved.
func (p *process) vital(name string) bool {
	switch name {
	case namePostgres, nameRedis, nameHTTP:
		return true
	case nameSchema:
		return p.embedsPostgres()
	}
	return false
}

// readTokens reads the tokens that open /status and /metrics.
func (p *process) readTokens() ([][sha256.Size]byte, error) {
	var err error
	if p.adminToken, err = readOrMakeToken(p.adminTokenPath(), registry.NewSecret); err != nil {
		return nil, fmt.Errorf("admin_token_file: %w", err)
	}
	tokens := [][sha256.Size]byte{sha256.Sum256([]byte(p.adminToken))}
	if path := p.config.MetricsTokenFile; path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("metrics_token_file: %w", err)
		}
		token := strings.TrimSpace(string(content))
		if token == "" {
			return nil, fmt.Errorf("metrics_token_file: %s is empty", path)
		}
		tokens = append(tokens, sha256.Sum256([]byte(token)))
	}
	return tokens, nil
}

func (p *process) adminTokenPath() string {
	if path := p.config.AdminTokenFile; path != "" {
		return path
	}
	return p.folder.path(adminTokenFile)
}

// run starts everything, calls whenReady once all of it is ready, and stops
// everything when ctx is done or something that the process cannot begin
// without has failed.
func (p *process) run(ctx context.Context, whenReady func(context.Context) error) error {
	p.warnOfOpenListener()
	p.supervisor.start()
	err := p.waitReady(ctx)
	if err == nil {
		err = whenReady(ctx)
	}
	if err == nil {
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil // asked to stop while starting
	}
	return errors.Join(err, p.shutdown())
}

// readyPoll is the pause between two looks at the readiness of modules that are up.
const readyPoll = 10 * time.Millisecond

// waitReady returns when every unit has begun and says that it is ready.
func (p *process) waitReady(ctx context.Context) error {
	for _, u := range p.supervisor.units {
		select {
		case <-u.wasReady:
		case err := <-p.supervisor.fatal:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for !p.house.readiness().Ready {
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// endpoints are where the process's services are.
func (p *process) endpoints() cli.Endpoints {
	e := cli.Endpoints{DatabaseURL: p.ownerURL(), RedisURL: p.redisURL()}
	if slices.Contains(p.modules, nameRegistry) {
		e.RegistryURL = p.ownURL()
		e.AdminTokenFile = p.adminTokenPath()
	}
	return e
}

// shutdown says that the process is not ready, then stops one unit after the
// other in the reverse order of their start; all together may take
// shutdown_timeout to drain their work.
func (p *process) shutdown() error {
	p.house.stopping.Store(true)
	p.folder.removeEndpoints()
	p.log.Info("stopping")
	ctx, cancel := context.WithTimeout(context.Background(), p.config.ShutdownTimeout)
	defer cancel()
	var errs []error
	for _, u := range slices.Backward(p.supervisor.units) {
		errs = append(errs, p.supervisor.stop(ctx, u))
	}
	p.closeRedis()
	p.folder.close()
	return errors.Join(errs...)
}

// warnOfOpenListener says so when tokens would cross a network in the clear.
func (p *process) warnOfOpenListener() {
	host, _, err := net.SplitHostPort(p.config.Listen)
	if err != nil || p.config.TLS.Certificate != "" {
		return
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return
	}
	p.log.Warn("the listener is open to the network without TLS: tokens can be read on the way; set tls.certificate and tls.key", "listen", p.config.Listen)
}
