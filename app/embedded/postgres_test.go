package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestPostgresKeepsItsDataFromStartToStart(t *testing.T) {
	dir := reachableDir(t)
	first := startTestPostgres(t, dir)
	execSQL(t, first.URL(Owner, Database), `CREATE TABLE kept AS SELECT 'yes' AS answer`)
	if got := queryText(t, first.URL(Owner, Database), `SELECT current_user || ' ' || current_database()`); got != "hubn hubn" {
		t.Errorf("user and database: got %q, want %q", got, "hubn hubn")
	}
	if got := queryText(t, first.URL(Owner, Database), `SHOW listen_addresses`); got != "" {
		t.Errorf("listen_addresses: got %q, want none", got)
	}
	pid := first.child.process.Pid
	for range 2 { // stopping twice is safe
		if err := first.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if running(pid) {
		t.Errorf("process %d runs after Stop", pid)
	}
	if _, err := os.Stat(first.socketDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket folder %s is left after Stop (%v)", first.socketDir, err)
	}

	second := startTestPostgres(t, dir)
	if got := queryText(t, second.URL(Owner, Database), `SELECT answer FROM kept`); got != "yes" {
		t.Errorf("after a second start: got %q, want yes", got)
	}
	if got, want := second.URL(Owner, Database), first.URL(Owner, Database); got != want {
		t.Errorf("the URL changed from start to start: got %s, want %s", got, want)
	}
}

func TestKilledHubnLeavesNoServerAndNoDamage(t *testing.T) {
	dir := reachableDir(t)
	helper, report := startHelper(t, dir)
	execSQL(t, report.PostgresURL, `CREATE TABLE kept AS SELECT 'committed' AS answer`)
	redisDo(t, report.RedisURL, "XADD", "stream", "1-1", "k", "v")
	kill(t, helper)

	if deathSignalWorks() {
		waitGone(t, "PostgreSQL", report.PostgresPid)
		waitGone(t, "Redis", report.RedisPid)
	}
	p := startTestPostgres(t, dir)
	if got := queryText(t, p.URL(Owner, Database), `SELECT answer FROM kept`); got != "committed" {
		t.Errorf("after SIGKILL: got %q, want committed", got)
	}
	r := startTestRedis(t, RedisOptions{DataDir: dir, Port: report.RedisPort})
	if r.URL() != report.RedisURL {
		t.Errorf("Redis after SIGKILL: got %s, want %s again", r.URL(), report.RedisURL)
	}
	if got := redisDo(t, r.URL(), "XLEN", "stream"); got != int64(1) {
		t.Errorf("stream length after SIGKILL: got %v, want 1", got)
	}
}

func TestNextStartDoesNotWaitForTheKilledOne(t *testing.T) {
	dir := reachableDir(t)
	helper, report := startHelper(t, dir)
	execSQL(t, report.PostgresURL, `CREATE TABLE kept AS SELECT 'committed' AS answer`)
	kill(t, helper)
	_, second := startHelper(t, dir) // at once, while the old servers may still be stopping
	if got := queryText(t, second.PostgresURL, `SELECT answer FROM kept`); got != "committed" {
		t.Errorf("after SIGKILL: got %q, want committed", got)
	}
	if second.RedisPort != report.RedisPort && running(report.RedisPid) {
		t.Errorf("the old Redis still holds port %d", report.RedisPort)
	}
}

// deathSignalWorks tells whether this system stops the children of a killed process.
func deathSignalWorks() bool {
	var attr syscall.SysProcAttr
	setDeathSignal(&attr, syscall.SIGTERM)
	return fmt.Sprint(attr) != fmt.Sprint(syscall.SysProcAttr{})
}

func TestLeftoverPostgresIsStoppedAndReplaced(t *testing.T) {
	dir := reachableDir(t)
	leftover := startTestPostgres(t, dir)
	execSQL(t, leftover.URL(Owner, Database), `CREATE TABLE kept AS SELECT 'yes' AS answer`)
	leftover.lock.Unlock() // what is left of a killed hubn where no death signal exists

	p := startTestPostgres(t, dir)
	select {
	case <-leftover.Done():
	default:
		t.Error("the leftover server still runs beside its successor")
	}
	if got := queryText(t, p.URL(Owner, Database), `SELECT answer FROM kept`); got != "yes" {
		t.Errorf("the successor: got %q, want yes", got)
	}
}

func TestDataFolderInUseIsRefused(t *testing.T) {
	dir := reachableDir(t)
	p := startTestPostgres(t, dir)
	_, err := StartPostgres(t.Context(), PostgresOptions{DataDir: dir})
	if want := fmt.Sprintf("is held by process %d", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("second start on the same folder: got %v, want an error with %q", err, want)
	}
	if got := queryText(t, p.URL(Owner, Database), `SELECT 'alive'`); got != "alive" {
		t.Errorf("the first server suffered: %q", got)
	}
}

func TestClusterOfAnotherVersionIsRefusedAndKept(t *testing.T) {
	dir := reachableDir(t)
	p := startTestPostgres(t, dir)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	version := filepath.Join(p.Dir(), "PG_VERSION")
	if err := os.WriteFile(version, []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := StartPostgres(t.Context(), PostgresOptions{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "is a cluster of PostgreSQL 9") {
		t.Fatalf("got %v, want an error that names version 9", err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir(), "global", "pg_control")); err != nil {
		t.Errorf("the cluster was touched: %v", err)
	}
}

func TestFolderThatIsNoClusterIsRefused(t *testing.T) {
	dir := reachableDir(t)
	writeFile(t, filepath.Join(dir, "postgres", "letter.txt"), "precious", 0o644)
	_, err := StartPostgres(t.Context(), PostgresOptions{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "no PG_VERSION") {
		t.Fatalf("got %v, want a refusal", err)
	}
}

func TestInterruptedInitdbIsBegunAgain(t *testing.T) {
	dir := reachableDir(t)
	writeFile(t, filepath.Join(dir, "postgres.new", "PG_VERSION"), "15\n", 0o600)
	p := startTestPostgres(t, dir)
	if got := queryText(t, p.URL(Owner, Database), `SELECT 'complete'`); got != "complete" {
		t.Errorf("got %q", got)
	}
}

func TestPidFileOfAnotherProcessDoesNotStopTheStart(t *testing.T) {
	dir := reachableDir(t)
	p := startTestPostgres(t, dir)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	credential, err := Credential()
	if err != nil {
		t.Fatal(err)
	}
	// The number of the killed postmaster went to another process of the same
	// user, as it does when a container starts again.
	bystander := exec.Command("sleep", "600")
	bystander.Dir = "/"
	bystander.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	}()
	pid := bystander.Process.Pid
	pidFile := fmt.Sprintf("%d\n%s\n1\n5432\n%s\n\n", pid, p.Dir(), p.socketDir)
	if err := os.WriteFile(filepath.Join(p.Dir(), "postmaster.pid"), []byte(pidFile), 0o644); err != nil {
		t.Fatal(err)
	}
	startTestPostgres(t, dir)
	if !running(pid) {
		t.Error("the bystander was stopped")
	}
}

func TestDeadPostgresSaysSoAndStartsAgain(t *testing.T) {
	dir := reachableDir(t)
	p := startTestPostgres(t, dir)
	execSQL(t, p.URL(Owner, Database), `CREATE TABLE kept AS SELECT 'yes' AS answer`)
	if err := syscall.Kill(p.child.process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Err: got %v, want one that says killed", err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	again := startTestPostgres(t, dir)
	if got := queryText(t, again.URL(Owner, Database), `SELECT answer FROM kept`); got != "yes" {
		t.Errorf("after a crash: got %q, want yes", got)
	}
}

func TestBackendThatOutlivesItsServerIsEnded(t *testing.T) {
	if !hasProc() {
		return // cannot be seen here; the start then fails until the backend is done
	}
	dir := reachableDir(t)
	p := startTestPostgres(t, dir)
	conn, err := pgx.Connect(t.Context(), p.URL(Owner, Database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	backend := int(conn.PgConn().PID())
	ended := make(chan error, 1)
	go func() {
		// It computes for hours and looks at nothing meanwhile.
		_, err := conn.Exec(context.Background(), `DO $$ BEGIN LOOP END LOOP; END $$`)
		ended <- err
	}()
	execSQL(t, p.URL(Owner, Database), `DO $$ BEGIN
		WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%LOOP END LOOP%' AND pid <> pg_backend_pid()) LOOP
			PERFORM pg_stat_clear_snapshot();
		END LOOP;
	END $$`)
	if err := syscall.Kill(p.child.process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if !running(backend) {
		t.Fatalf("the backend %d noticed by itself: this test shows nothing", backend)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sleep", "600")
	shell.Dir = p.Dir() // somebody who looks around there
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	}()
	again := startTestPostgres(t, dir)
	if !running(shell.Process.Pid) {
		t.Error("a bystander in the folder was stopped")
	}
	if got := queryText(t, again.URL(Owner, Database), `SELECT 'up'`); got != "up" {
		t.Errorf("got %q", got)
	}
	if err := <-ended; err == nil {
		t.Error("the loop ended without an error")
	}
}

func TestRefusedSettingIsReportedWithTheServersWords(t *testing.T) {
	dir := reachableDir(t)
	_, err := StartPostgres(t.Context(), PostgresOptions{DataDir: dir, Settings: map[string]string{"max_connections": "few"}})
	if err == nil || !strings.Contains(err.Error(), `"max_connections"`) {
		t.Fatalf("got %v, want the server's own words about max_connections", err)
	}
}

// TestUnreachableDataFolder runs both ways: as root the database's user cannot
// enter the folder and the cluster goes elsewhere; otherwise it is hubn's own user.
func TestUnreachableDataFolder(t *testing.T) {
	dir := reachableDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "postgres")
	if os.Geteuid() == 0 {
		want = filepath.Join(systemDataDir, folderHash(dir), "postgres")
		t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(want)) })
	}
	first := startTestPostgres(t, dir)
	if first.Dir() != want {
		t.Fatalf("the cluster is in %s, want %s", first.Dir(), want)
	}
	execSQL(t, first.URL(Owner, Database), `CREATE TABLE kept AS SELECT 'yes' AS answer`)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	// A folder that becomes reachable later does not get a second, empty cluster.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	second := startTestPostgres(t, dir)
	if got := queryText(t, second.URL(Owner, Database), `SELECT answer FROM kept`); got != "yes" {
		t.Errorf("after a second start: got %q, want yes", got)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
}

func TestNewDataFolderDoesNotGetAnEarlierOnesCluster(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root keeps clusters outside of the data folder
	}
	dir := reachableDir(t)
	elsewhere := filepath.Join(systemDataDir, folderHash(dir))
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	first := startTestPostgres(t, dir)
	execSQL(t, first.URL(Owner, Database), `CREATE TABLE old AS SELECT 1`)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	second := startTestPostgres(t, dir)
	if got := queryText(t, second.URL(Owner, Database), `SELECT coalesce(to_regclass('old')::text, 'none')`); got != "none" {
		t.Errorf("the new folder's cluster has the old table: %q", got)
	}
	kept, err := filepath.Glob(filepath.Join(elsewhere, "postgres.2*", "PG_VERSION"))
	if err != nil || len(kept) != 1 {
		t.Errorf("the earlier cluster is kept in %v (%v), want one place", kept, err)
	}
}

func TestSocketFolderOfSomebodyElseIsRefused(t *testing.T) {
	dir := filepath.Join(reachableDir(t), "socket")
	if err := os.Symlink("/tmp", dir); err != nil {
		t.Fatal(err)
	}
	if err := makeOwnFolder(dir, nil); err == nil {
		t.Error("a symbolic link was taken for the socket folder")
	}
}
