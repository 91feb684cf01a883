package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"hubn/registry"
)

const (
	// registryMany and registryFew are the sizes of the registries that are compared.
	registryMany, registryFew = 1_000_000, 10_000
	// registryClients ask at the same time.
	registryClients = 16
)

// registryGroup measures the Registry's API as clients see it: over HTTP, with the
// triggers' events where something is written.
func registryGroup(ctx context.Context, b *bench) error {
	s, err := startServers(ctx, b)
	if err != nil {
		return err
	}
	if err := s.migrated(ctx, "registry_empty"); err != nil {
		return err
	}
	if err := measureNextFree(ctx, b, s); err != nil {
		return fmt.Errorf("next-free: %w", err)
	}
	if err := measureImport(ctx, b, s); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	few, err := filled(ctx, b, s, "registry_few", registryFew)
	if err != nil {
		return err
	}
	many, err := filled(ctx, b, s, "registry_many", registryMany)
	if err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *bench, *registryAPI, *registryAPI) error{
		measureGet, measureLongest, measureScanIDs, measureListPage,
	} {
		if err := measure(ctx, b, many, few); err != nil {
			return err
		}
	}
	return nil
}

// registryAPI is a Registry that serves over HTTP.
type registryAPI struct {
	pool   *pgxpool.Pool
	url    string
	token  string
	client *http.Client
	layout layout
}

// serveRegistry runs a Registry on a database.
func serveRegistry(ctx context.Context, b *bench, s *servers, database string) (*registryAPI, error) {
	pool, err := s.pool(ctx, database, 2)
	if err != nil {
		return nil, err
	}
	b.atEnd(pool.Close)
	api := &registryAPI{pool: pool}
	if api.url, api.token, err = listenRegistry(ctx, b, s.url(database), s.redis); err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * registryClients, DisableCompression: true}
	api.client = &http.Client{Transport: transport}
	b.atEnd(transport.CloseIdleConnections)
	return api, nil
}

// listenRegistry runs a Registry behind an HTTP server, and answers where it is and
// the token of an admin.
func listenRegistry(ctx context.Context, b *bench, databaseURL string, hints redis.UniversalClient) (url, token string, err error) {
	token = registry.NewSecret()
	r := registry.New(registry.Options{
		Settings: registry.DefaultSettings(), DatabaseURL: databaseURL, Redis: hints, Names: benchNames,
		StaticTokens: []registry.StaticToken{{Token: token, Name: "bench", Roles: []string{"admin"}}},
	})
	if err := start(ctx, b, "registry", r.Run); err != nil {
		return "", "", err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.atEnd(func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), token, nil
}

// ask makes a request and answers the body of a success.
func (a *registryAPI) ask(ctx context.Context, method, path string, body io.Reader) ([]byte, error) {
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return text, nil
}

func (a *registryAPI) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return a.client.Do(req)
}

// together runs f in each of the clients until it says that it is done, and answers
// the first error.
func together(f func(client int) error) error {
	var group sync.WaitGroup
	failed := make(chan error, registryClients)
	for n := range registryClients {
		group.Go(func() {
			if err := f(n); err != nil {
				failed <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

const (
	// askRounds alternate between the two registries, so that a machine that grows
	// slower favours neither.
	askRounds = 5
	askTime   = time.Second
)

// latenciesOf asks for paths from all clients for a while, in milliseconds.
func (a *registryAPI) latenciesOf(ctx context.Context, path func() string) ([]float64, error) {
	var (
		mu  sync.Mutex
		all []float64
	)
	until := time.Now().Add(askTime)
	err := together(func(int) error {
		var own []float64
		for time.Now().Before(until) {
			begun := time.Now()
			if _, err := a.ask(ctx, http.MethodGet, path(), nil); err != nil {
				return err
			}
			own = append(own, milliseconds(time.Since(begun)))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, own...)
		return nil
	})
	return all, err
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measureRead compares one kind of request on both registries: the p99 on the large
// one, and what a request costs there to what it costs on the small one. The clients
// wait for nothing but answers: what a request costs is their time by its number.
func measureRead(ctx context.Context, b *bench, name string, many, few *registryAPI, path func(*registryAPI) string) error {
	var slow, costMany, costFew []float64
	for round := range askRounds + 1 {
		for _, api := range []*registryAPI{few, many} {
			all, err := api.latenciesOf(ctx, func() string { return path(api) })
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			cost := milliseconds(askTime) / float64(len(all))
			switch {
			case round == 0: // connections are opened and pages read
			case api == many:
				slow, costMany = append(slow, percentile(all, 0.99)), append(costMany, cost)
			default:
				costFew = append(costFew, cost)
			}
		}
	}
	progress("%s: %.0f requests/s", name, 1000/median(costMany))
	b.compared(name, median(slow), "ms", ratio(costMany, costFew), "cost_at_10000")
	return nil
}

func measureGet(ctx context.Context, b *bench, many, few *registryAPI) error {
	return measureRead(ctx, b, "registry_get", many, few, func(a *registryAPI) string {
		return fmt.Sprintf("/v1/prefixes/%d", 1+rand.N(a.layout.total()))
	})
}

func measureLongest(ctx context.Context, b *bench, many, few *registryAPI) error {
	return measureRead(ctx, b, "registry_longest", many, few, func(a *registryAPI) string {
		return "/v1/prefixes?longest=" + a.layout.address().String()
	})
}
