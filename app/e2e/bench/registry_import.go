package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"hubn/registry/client"
)

const (
	// imported is how many prefixes with routing one import has.
	imported = 100_000
	// importLimit ends a run that hangs.
	importLimit = 5 * time.Minute
)

// measureImport imports prefixes as NDJSON into a Registry in a process of its own,
// from the first row sent until the job is done: all rows, their lanes, events and
// change log in one transaction. The memory is that process's at its highest.
func measureImport(ctx context.Context, b *bench, s *servers) error {
	progress("registry: import of %d prefixes", imported)
	ctx, cancel := context.WithTimeout(ctx, importLimit)
	defer cancel()
	name, err := s.copied(ctx, "registry_empty")
	if err != nil {
		return err
	}
	defer func() { _ = s.drop(context.WithoutCancel(ctx), name) }()
	importer, err := startImporter(ctx, s, name)
	if err != nil {
		return err
	}
	defer importer.stop()
	begun := time.Now()
	job, err := importer.api.StartImport(ctx, client.BulkImport{}, importRows())
	for err == nil && job.State == client.JobRunning {
		if !breathe(ctx) {
			return ctx.Err()
		}
		job, err = importer.api.ImportJob(ctx, job.ID)
	}
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if job.State != client.JobDone {
		return fmt.Errorf("the job is %s: %s %v", job.State, job.Error, job.Errors)
	}
	if err := importer.check(ctx); err != nil {
		return err
	}
	peak, err := statusMB(importer.command.Process.Pid, "VmHWM")
	if err != nil {
		return err
	}
	b.figure("registry_import", imported/took.Seconds(), "objects/s")
	b.figure("registry_import_memory", peak, "MB")
	return nil
}

// importRows are the prefixes, in address order as people have them in files.
func importRows() io.Reader {
	out, in := io.Pipe()
	go func() {
		w := bufio.NewWriterSize(in, 64<<10)
		for i := range imported {
			fmt.Fprintf(w, `{"kind":"prefix","body":{"prefix":"%s/26","routing":{"announced":true,"origin":%d,"max_length":28}}}`+"\n",
				addressAt(i*64), 64496+i%16)
		}
		_ = in.CloseWithError(w.Flush())
	}()
	return out
}

// importer is a Registry in another process.
type importer struct {
	command *exec.Cmd
	stdin   io.Closer
	api     *client.Client
	url     string
}

func startImporter(ctx context.Context, s *servers, database string) (*importer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	i := &importer{url: s.url(database), command: exec.CommandContext(ctx, self, "registry-server", s.url(database), s.redisURL)}
	i.command.Stderr = os.Stderr
	if i.stdin, err = i.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := i.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := i.command.Start(); err != nil {
		return nil, err
	}
	var address, token string
	if _, err := fmt.Fscanln(out, &address, &token); err != nil {
		i.stop()
		return nil, fmt.Errorf("the Registry did not start: %w", err)
	}
	i.api, err = client.New(client.Options{URL: address, Token: token})
	if err != nil {
		i.stop()
	}
	return i, err
}

func (i *importer) stop() {
	_ = i.stdin.Close()
	_ = i.command.Wait()
}

// check counts what the import made.
func (i *importer) check(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, i.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var prefixes, events int
	const counts = `SELECT (SELECT count(*) FROM registry.prefix WHERE announced), (SELECT count(*) FROM registry.outbox_event WHERE kind = 'created')`
	if err := conn.QueryRow(ctx, counts).Scan(&prefixes, &events); err != nil {
		return err
	}
	if prefixes != imported || events < imported {
		return fmt.Errorf("the import made %d prefixes and %d events", prefixes, events)
	}
	return nil
}

// serveElsewhere is the other process: it serves until its standard input ends.
func serveElsewhere(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("registry-server takes the database's URL and that of Redis")
	}
	options, err := redis.ParseURL(args[1])
	if err != nil {
		return err
	}
	b := &bench{}
	defer b.close()
	hints := redis.NewClient(options)
	b.atEnd(func() { _ = hints.Close() })
	address, token, err := listenRegistry(ctx, b, args[0], hints)
	if err != nil {
		return err
	}
	fmt.Println(address, token)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
