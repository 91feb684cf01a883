package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"hubn/registry/client"
	"hubn/schema/pooler"
)

const (
	// clockTolerance is a difference of clocks that hurts nobody: the database's
	// decides, and the others only show times.
	clockTolerance = 2 * time.Second
	// snapshotTolerance is the age of a snapshot from which on dead rows pile up.
	snapshotTolerance = 10 * time.Minute
	// lockTolerance is how long a transaction may hold lanes: events of those wait.
	lockTolerance = time.Minute
	// deadTolerance is how many dead rows the outbox's tables may hold.
	deadTolerance = 1000000
	// partitionAlarm is how many days of partitions are too few.
	partitionAlarm = 14
)

type doctorOutput struct {
	Body client.OutboxDoctor
}

// outboxDoctor examines; what cannot be examined is a finding too.
func (s *service) outboxDoctor(ctx context.Context, _ *struct{}) (*doctorOutput, error) {
	var out doctorOutput
	var databaseOffset *time.Duration
	err := s.read(ctx, func(ctx context.Context, tx *reading) error {
		out.Body.Lineage = tx.Lineage
		pooled, err := examinePooler(ctx, tx)
		if err != nil {
			return err
		}
		health, err := examineHealth(ctx, tx)
		if err != nil {
			return err
		}
		offset, err := s.databaseOffset(ctx, tx)
		databaseOffset = &offset
		out.Body.Findings = append([]client.Finding{pooled}, health...)
		return err
	})
	if err != nil {
		return nil, err
	}
	out.Body.Findings = append(out.Body.Findings, examineClock("clock of PostgreSQL", *databaseOffset))
	out.Body.Findings = append(out.Body.Findings, s.examineRedis(ctx)...)
	return &out, nil
}

func fine(check, format string, args ...any) client.Finding {
	return client.Finding{Check: check, Level: "ok", Detail: fmt.Sprintf(format, args...)}
}

func unsure(check string, err error) client.Finding {
	return client.Finding{Check: check, Level: "unknown", Detail: err.Error(), Advice: "look at it yourself"}
}

// examinePooler says what is at the other end of the Registry's connections.
func examinePooler(ctx context.Context, tx *reading) (client.Finding, error) {
	const check = "pooler"
	pooled, err := pooler.Between(ctx, tx.Conn())
	if pooled {
		return fine(check, "a pooler is between the Registry and PostgreSQL: limits are set for each transaction, and nothing is prepared by name"), err
	}
	return fine(check, "none: the Registry reaches PostgreSQL itself"), err
}

const sqlHealth = `
SELECT h.lane_lock_seconds, h.xmin_seconds, h.dead_tuples, h.partitions, h.days_ahead
FROM registry.outbox_health() h`

func examineHealth(ctx context.Context, q querier) ([]client.Finding, error) {
	var lockSeconds, snapshotSeconds float64
	var dead, partitions int64
	var ahead int
	if err := q.QueryRow(ctx, sqlHealth).Scan(&lockSeconds, &snapshotSeconds, &dead, &partitions, &ahead); err != nil {
		return nil, err
	}
	lock := time.Duration(lockSeconds * float64(time.Second)).Round(time.Millisecond)
	snapshot := time.Duration(snapshotSeconds * float64(time.Second)).Round(time.Millisecond)
	return []client.Finding{
		inspected("locks on lanes", lock <= lockTolerance,
			fmt.Sprintf("the longest transaction that changes lanes runs for %s", lock),
			"end it (pg_stat_activity shows it): the events of its lanes wait for it"),
		inspected("oldest snapshot", snapshot <= snapshotTolerance,
			fmt.Sprintf("the oldest snapshot is %s old", snapshot),
			"end its transaction (pg_stat_activity, backend_xmin): vacuum removes no dead row that it may still see"),
		inspected("dead rows", dead <= deadTolerance,
			fmt.Sprintf("%d dead rows in the outbox's tables", dead),
			"see whether autovacuum is on and keeps up, and whether an old snapshot holds it up"),
		inspected("partitions ahead", ahead >= partitionAlarm,
			fmt.Sprintf("%d partitions of events, enough for %d days", partitions, ahead),
			"run hubn migrate, or see in the Registry's log why it makes none: without a partition no change can be written"),
	}, nil
}

func inspected(check string, ok bool, detail, advice string) client.Finding {
	if ok {
		return fine(check, "%s", detail)
	}
	return client.Finding{Check: check, Level: "warning", Detail: detail, Advice: advice}
}

const sqlClock = `SELECT clock_timestamp()`

// databaseOffset is by how much the database's clock is ahead of this process's,
// half of the round trip allowed for.
func (s *service) databaseOffset(ctx context.Context, q querier) (time.Duration, error) {
	var there time.Time
	return s.offset(func() (time.Time, error) { return there, q.QueryRow(ctx, sqlClock).Scan(&there) })
}

func (s *service) offset(ask func() (time.Time, error)) (time.Duration, error) {
	before := s.clock()
	there, err := ask()
	after := s.clock()
	return there.Sub(before.Add(after.Sub(before) / 2)), err
}

func examineClock(check string, offset time.Duration) client.Finding {
	return inspected(check, offset.Abs() <= clockTolerance,
		fmt.Sprintf("it is %s ahead of this process's", offset.Round(time.Millisecond)),
		"synchronise the clocks (NTP): nothing breaks, but times in different places will not fit each other")
}

// examineRedis asks Redis how it keeps what it is given.
func (s *service) examineRedis(ctx context.Context) []client.Finding {
	if s.redis == nil {
		return []client.Finding{unsure("redis", errNoRedis)}
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return []client.Finding{{Check: "redis", Level: "error", Detail: "Redis does not answer: " + err.Error(),
			Advice: "start it: changes are kept in PostgreSQL and published when it is back"}}
	}
	findings := []client.Finding{fine("redis", "answers"), s.examineEviction(ctx), s.examinePersistence(ctx)}
	offset, err := s.offset(func() (time.Time, error) { return s.redis.Time(ctx).Result() })
	if err != nil {
		return append(findings, unsure("clock of Redis", err))
	}
	return append(findings, examineClock("clock of Redis", offset))
}

func (s *service) examineEviction(ctx context.Context) client.Finding {
	const check = "eviction"
	policy, err := s.redis.ConfigGet(ctx, "maxmemory-policy").Result()
	if err != nil {
		return unsure(check, err)
	}
	return inspected(check, policy["maxmemory-policy"] == "noeviction",
		"maxmemory-policy is "+policy["maxmemory-policy"],
		"set it to noeviction: otherwise a full Redis throws streams and fences away instead of refusing new entries")
}

func (s *service) examinePersistence(ctx context.Context) client.Finding {
	const check = "append-only file"
	info, err := s.redis.Info(ctx, "persistence").Result()
	if err == nil && !strings.Contains(info, "aof_enabled:") {
		err = fmt.Errorf("this Redis does not say whether it has one")
	}
	if err != nil {
		return unsure(check, err)
	}
	return inspected(check, strings.Contains(info, "aof_enabled:1"),
		"appendonly is "+map[bool]string{true: "on", false: "off"}[strings.Contains(info, "aof_enabled:1")],
		"set appendonly yes and appendfsync everysec: after a crash without it every consumer reconciles fully")
}
