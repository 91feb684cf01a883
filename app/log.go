package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"golang.org/x/term"
)

// logLevel reads a level of log.level.
func logLevel(name string) (slog.Level, error) {
	var level slog.Level
	switch strings.ToLower(name) {
	case "debug", "info", "warn", "error":
		return level, level.UnmarshalText([]byte(name))
	}
	return 0, fmt.Errorf("log.level is %q: write debug, info, warn or error", name)
}

// newLogger is the process's logger: short lines for a person at a terminal,
// else slog's text or JSON.
func newLogger(c LogConfig, w io.Writer) (*slog.Logger, error) {
	level, err := logLevel(c.Level)
	if err != nil {
		return nil, err
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case c.Format == "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	case c.Format == "auto" && isTerminal(w):
		return slog.New(newConsoleHandler(w, level)), nil
	}
	return slog.New(slog.NewTextHandler(w, options)), nil
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// consoleHandler writes a record as a person reads it: the time, the level if it
// is not info, the message, then the attributes.
type consoleHandler struct {
	level slog.Level
	// text formats attributes, into buffer.
	text   slog.Handler
	buffer *strings.Builder
	mu     *sync.Mutex
	w      io.Writer
}

func newConsoleHandler(w io.Writer, level slog.Level) *consoleHandler {
	buffer := &strings.Builder{}
	text := slog.NewTextHandler(buffer, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	return &consoleHandler{level: level, text: text, buffer: buffer, mu: &sync.Mutex{}, w: w}
}

// Enabled tells whether a level is logged.
func (h *consoleHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }

// levelMarks are what a level looks like: coloured, for warnings and errors.
var levelMarks = map[slog.Level]string{
	slog.LevelDebug: "\x1b[2mdebug\x1b[0m ",
	slog.LevelWarn:  "\x1b[33mwarning\x1b[0m ",
	slog.LevelError: "\x1b[31merror\x1b[0m ",
}

// Handle writes one record.
func (h *consoleHandler) Handle(ctx context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buffer.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return err
	}
	line := r.Time.Format("15:04:05 ") + levelMarks[r.Level] + r.Message
	if attrs := strings.TrimSpace(h.buffer.String()); attrs != "" {
		line += "  \x1b[2m" + attrs + "\x1b[0m"
	}
	_, err := io.WriteString(h.w, line+"\n")
	return err
}

// WithAttrs is the handler with attributes on every record.
func (h *consoleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	with.text = h.text.WithAttrs(attrs)
	return &with
}

// WithGroup is the handler with a group around further attributes.
func (h *consoleHandler) WithGroup(name string) slog.Handler {
	with := *h
	with.text = h.text.WithGroup(name)
	return &with
}

// redisLog takes what the Redis client says of its pool; whoever uses the
// client reports what failed, so this is for a closer look only.
type redisLog struct{ log *slog.Logger }

// Printf is called by the client.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.log.DebugContext(ctx, strings.TrimSpace(fmt.Sprintf(format, v...)))
}

var redisLogOnce sync.Once

// quietRedis sends the client's own messages, which otherwise go to standard
// error, to the first process's log: the client has one logger only.
func quietRedis(log *slog.Logger) {
	redisLogOnce.Do(func() { redis.SetLogger(redisLog{log.With("service", "redis client")}) })
}
