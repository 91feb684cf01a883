package app

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"hubn/app/cli"
	"hubn/outbox/event"
)

func TestDevServesEverythingAndStopsCleanly(t *testing.T) {
	dir := dataFolder(t)
	dev := startRunning(t, dir, "dev", "--log-level", "debug")
	if dev.RegistryURL == "" || dev.DatabaseURL == "" || dev.RedisURL == "" || dev.AdminTokenFile != filepath.Join(dir, adminTokenFile) {
		t.Errorf("endpoints: %+v", dev.Endpoints)
	}
	if code, body := get(t, http.DefaultClient, dev.RegistryURL+"/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d %s", code, body)
	}
	commands := []struct {
		args []string
		want string
	}{
		{[]string{"prefix", "list", "-o", "json"}, `"prefix":"192.0.2.0/24"`},
		{[]string{"anycast", "list"}, "resolver"},
		{[]string{"wait", "--timeout", "1m"}, ""},
		{[]string{"trace", "192.0.2.0/24"}, "published"},
		{[]string{"status"}, "outbox"},
		{[]string{"modules"}, "publishes every committed change"},
		{[]string{"doctor"}, "schema registry"},
		{[]string{"migrate", "--check"}, "is up to date"},
	}
	for _, c := range commands {
		if got := hubn(t, dir, c.args...); !strings.Contains(got, c.want) {
			t.Errorf("hubn %s: got\n%s\nwant it to hold %q", strings.Join(c.args, " "), got, c.want)
		}
	}
	secrets := secretsOf(t, dev)
	if status := dev.stop(t); status != exitDone {
		t.Errorf("exit status: got %d\n%s", status, dev.log)
	}
	for name, secret := range secrets {
		if strings.Contains(dev.log.String(), secret) {
			t.Errorf("the log holds the %s", name)
		}
	}
	if _, err := cli.ReadEndpoints(dir); err == nil {
		t.Errorf("%s is there after the end", cli.EndpointsFile)
	}
}

// secretsOf are the secrets that a process knows.
func secretsOf(t *testing.T, r *running) map[string]string {
	t.Helper()
	token, err := os.ReadFile(r.AdminTokenFile)
	if err != nil {
		t.Fatal(err)
	}
	redisURL, err := url.Parse(r.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := redisURL.User.Password()
	if len(token) == 0 || password == "" {
		t.Fatalf("no token in %s, or no password in the URL of Redis", r.AdminTokenFile)
	}
	return map[string]string{"admin token": strings.TrimSpace(string(token)), "password of Redis": password}
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestKilledHubnStartsAgainWhereItWas(t *testing.T) {
	dir := dataFolder(t)
	first, before := startProgram(t, dir, "dev", "--demo=false")
	hubn(t, dir, "organisation", "create", "--handle", "KEPT")
	first.signal(t, syscall.SIGKILL)
	<-first.ended
	// What the killed process said is removed by the next one, but not before this
	// test could read it.
	if err := os.Remove(filepath.Join(dir, cli.EndpointsFile)); err != nil {
		t.Fatal(err)
	}

	second, after := startProgram(t, dir, "dev")
	if after != before {
		t.Errorf("endpoints after SIGKILL: got %+v, want %+v", after, before)
	}
	if got := hubn(t, dir, "organisation", "list"); !strings.Contains(got, "KEPT") || strings.Contains(got, "EXAMPLE") {
		t.Errorf("organisations after SIGKILL: want the one that was there, and no demo beside it:\n%s", got)
	}

	// A request that does not end holds up the orderly stop; a second signal does not wait.
	hung := openRequest(t, after)
	defer func() { _ = hung.Close() }()
	second.signal(t, syscall.SIGTERM)
	waitLong(t, func() bool { _, err := cli.ReadEndpoints(dir); return err != nil })
	second.signal(t, syscall.SIGTERM)
	<-second.ended
	if status, ok := second.state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("after a second signal: ended with %s, want the signal itself", second.state)
	}
}

// openRequest begins a request whose body never ends.
func openRequest(t *testing.T, e cli.Endpoints) net.Conn {
	t.Helper()
	token, err := os.ReadFile(e.AdminTokenFile)
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(e.RegistryURL, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "POST /v1/organisations HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		host, strings.TrimSpace(string(token)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestModulesInTwoProcessesUseTheSamePath(t *testing.T) {
	registry := startRunning(t, dataFolder(t), "dev", "--demo=false", "--modules=registry", "--listen=127.0.0.1:0")
	config := writeConfig(t, fmt.Sprintf("listen: 127.0.0.1:0\ndatabase:\n  url: %q\nredis:\n  url: %q\n", registry.DatabaseURL, registry.RedisURL))
	worker := startRunning(t, dataFolder(t), "serve", "--modules=outbox", "--config", config)
	if worker.RegistryURL != "" {
		t.Errorf("a process without the registry names one: %s", worker.RegistryURL)
	}
	hubn(t, registry.dir, "organisation", "create", "--handle", "SPLIT")
	hubn(t, registry.dir, "wait", "--timeout", "1m")

	options, err := redis.ParseURL(registry.RedisURL)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	var events []string
	for stream := range event.Streams {
		entries, err := client.XRange(t.Context(), event.Names{Prefix: DefaultConfig().Redis.Prefix}.Stream(stream), "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			events = append(events, fmt.Sprint(entry.Values["resource"]))
		}
	}
	if got := strings.Join(events, " "); !strings.Contains(got, "organisation:1") {
		t.Errorf("resources in the streams: %q, want organisation:1 among them", got)
	}
}

func TestKilledDatabaseIsStartedAgainUnderTheModules(t *testing.T) {
	dir := dataFolder(t)
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	pool := x509.NewCertPool()
	renew := func(serial int64) {
		cert, key := makeCertificate(t, serial)
		pool.AppendCertsFromPEM(cert)
		replaceFile(t, certFile, cert)
		replaceFile(t, keyFile, key)
	}
	renew(1)
	config := writeConfig(t, fmt.Sprintf("listen: 127.0.0.1:0\ntls:\n  certificate: %q\n  key: %q\n", certFile, keyFile))
	serve := startRunning(t, dir, "serve", "--config", config)
	if !strings.HasPrefix(serve.RegistryURL, "https://") {
		t.Fatalf("registry_url: %s, want https", serve.RegistryURL)
	}
	if !strings.Contains(serve.log.String(), "level=WARN msg=\"no database.url is configured") {
		t.Errorf("embedded services of serve are not said loudly:\n%s", serve.log)
	}

	renew(2)
	waitLong(t, func() bool { return serialOf(t, serve.RegistryURL, pool) == 2 })

	pid := postmasterPid(t, dir)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HUBN_CA_FILE", certFile)
	waitLong(t, func() bool {
		var stdout, stderr bytes.Buffer
		status := Run(t.Context(), []string{"organisation", "create", "--handle", "AFTER", "--data-dir", dir}, strings.NewReader(""), &stdout, &stderr)
		return status == exitDone && postmasterPid(t, dir) != pid
	})
	// The registry answers again as soon as the database does; the outbox is ready
	// once its own connections have found that out.
	var st ProcessStatus
	waitLong(t, func() bool {
		var stdout, stderr bytes.Buffer
		status := Run(t.Context(), []string{"status", "-o", "json", "--data-dir", dir}, strings.NewReader(""), &stdout, &stderr)
		if status != exitDone {
			return false
		}
		if err := json.Unmarshal(stdout.Bytes(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ready
	})
	for _, m := range st.Modules {
		if m.Name == namePostgres && m.Restarts != 1 {
			t.Errorf("restarts of %s: got %d, want 1", m.Name, m.Restarts)
		}
	}
	hubn(t, dir, "wait", "--timeout", "1m")
}

// serialOf is the serial number of the certificate that a server shows on a new
// connection.
func serialOf(t *testing.T, address string, pool *x509.CertPool) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// postmasterPid is the process of the cluster in a data folder, or 0 while it starts.
func postmasterPid(t *testing.T, dir string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "postgres", "postmaster.pid"))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0
	}
	return pid
}

func TestWrongUseIsExitStatus2(t *testing.T) {
	cases := [][]string{
		{"nonsense"},
		{"dev", "--no-such-flag"},
		{"version", "extra"},
		{"serve", "--modules=nonsense"},
		{"version", "--output=xml"},
	}
	for _, args := range cases {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var stderr bytes.Buffer
			if got := Run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr); got != exitUsage {
				t.Errorf("exit status: got %d, want %d\n%s", got, exitUsage, &stderr)
			}
			if !strings.Contains(stderr.String(), "--help") {
				t.Errorf("no way out is named:\n%s", &stderr)
			}
		})
	}
}

func TestProcessThatCannotBeginSaysWhyAndEnds(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	cases := []struct {
		name string
		args []string
		want string
	}{
		{"address in use", []string{"dev", "--listen", taken.Addr().String()}, "choose another with --listen"},
		{"an address of another machine", []string{"dev", "--listen", "192.0.2.1:8080"}, "an address of this machine"},
		{"no configuration", []string{"serve", "--config", "/nonexistent.yaml"}, "/nonexistent.yaml"},
		{"split without services", []string{"serve", "--modules=outbox"}, "outbox.database_url"},
		{"no process to ask", []string{"status"}, "hubn dev"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			got := Run(t.Context(), append(c.args, "--data-dir", dataFolder(t)), strings.NewReader(""), io.Discard, &stderr)
			if got != exitFailed || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("exit status %d, want %d; said:\n%s\nwant it to hold %q", got, exitFailed, &stderr, c.want)
			}
		})
	}
}
