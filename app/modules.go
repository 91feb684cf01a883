package app

import (
	"fmt"
	"slices"
	"strings"

	"hubn/app/module"
	"hubn/outbox"
	"hubn/outbox/event"
	"hubn/registry"
)

// The names of everything that a process may run.
const (
	namePostgres = "postgres" // embedded
	nameRedis    = "redis"    // embedded
	nameSchema   = "schema"
	nameHTTP     = "http"
	nameRegistry = registry.Name
	nameOutbox   = outbox.Name
)

// entry is a row of the table of modules.
type entry struct {
	name string
	// about says in half a sentence what it does, for `hubn modules`.
	about string
	// included tells whether a process runs it.
	included func(*process) bool
	// needs are the entries, if the process runs them, that must have been ready
	// once before this one starts.
	needs     []string
	construct func(*process) (module.Module, error)
}

// table is what a process runs: started in this order as far as their needs
// allow, stopped in the reverse order. What must answer requests of others until
// they have stopped stands before them.
var table = []entry{
	{namePostgres, "the embedded PostgreSQL, where no database is configured", (*process).embedsPostgres, nil, newPostgres},
	{nameRedis, "the embedded Redis, where none is configured", (*process).embedsRedis, nil, newRedis},
	{nameHTTP, "the listener: /healthz, /readyz, /status, /metrics and the modules' own paths", always, nil, newFront},
	{nameSchema, "brings the database's schema up to date", chosen(nameRegistry), []string{namePostgres}, newSchema},
	{nameRegistry, "keeps the registry and answers its API", chosen(nameRegistry), []string{nameSchema, nameRedis}, newRegistry},
	{nameOutbox, "publishes every committed change to Redis, in order", chosen(nameOutbox), []string{nameSchema, nameRedis}, newOutbox},
}

func newRegistry(p *process) (module.Module, error) {
	client, err := p.redisClient()
	if err != nil {
		return nil, err
	}
	return registry.New(registry.Options{
		Settings:        p.config.Registry.Settings,
		DatabaseURL:     p.database(p.config.Registry.DatabaseURL),
		Redis:           client,
		Names:           event.Names{Prefix: p.config.Redis.Prefix},
		StaticTokens:    []registry.StaticToken{{Token: p.adminToken, Name: "admin", Roles: []string{"admin"}}},
		Seal:            p.keyring,
		OwnNameservers:  p.config.DNS.Nameservers,
		OutboxRetention: p.config.Outbox.Retention,
		Log:             p.moduleLog(nameRegistry),
		Metrics:         p.freshMetrics(nameRegistry),
		Version:         version(),
		Clock:           p.now,
	}), nil
}

func newOutbox(p *process) (module.Module, error) {
	client, err := p.redisClient()
	if err != nil {
		return nil, err
	}
	return outbox.New(outbox.Options{
		Settings:    p.config.Outbox.Settings,
		DatabaseURL: p.database(p.config.Outbox.DatabaseURL),
		Redis:       client,
		Names:       event.Names{Prefix: p.config.Redis.Prefix},
		Log:         p.moduleLog(nameOutbox),
		Metrics:     p.freshMetrics(nameOutbox),
	}), nil
}

func always(*process) bool { return true }

// chosen is an entry that --modules chooses.
func chosen(name string) func(*process) bool {
	return func(p *process) bool { return slices.Contains(p.modules, name) }
}

// moduleNames are the names that --modules takes, in the table's order.
func moduleNames() []string {
	var names []string
	for _, e := range modulesOf(table) {
		names = append(names, e.name)
	}
	return names
}

// modulesOf are the entries that are modules, not parts of every process.
func modulesOf(entries []entry) []entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e entry) bool {
		return slices.Contains([]string{namePostgres, nameRedis, nameHTTP, nameSchema}, e.name)
	})
}

// selectModules reads --modules: names, or nothing for all of them.
func selectModules(names []string) ([]string, error) {
	known := moduleNames()
	if len(names) == 0 {
		return known, nil
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no module %q: choose from %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}
