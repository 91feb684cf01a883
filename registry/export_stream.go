package registry

import (
	"bufio"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// exportTimeout bounds the one statement of an export, which runs as long as the
// client takes to read: a million objects over a slow line.
const exportTimeout = 30 * time.Minute

const sqlExportTimeouts = `
SELECT set_config('statement_timeout', $1, true),
       set_config('idle_in_transaction_session_timeout', $1, true)`

// export streams what write writes of one snapshot. An error before the first byte
// is a problem document; after it, only a broken connection can say that the answer
// is not whole.
func (s *service) export(ctx context.Context, media string, write func(context.Context, *reading, *bufio.Writer) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(h huma.Context) {
		_, w := humago.Unwrap(h)
		late := &lateAnswer{answer: w, media: media}
		out := bufio.NewWriterSize(late, 64<<10)
		err := s.read(ctx, func(ctx context.Context, tx *reading) error {
			if _, err := tx.Exec(ctx, sqlExportTimeouts, milliseconds(exportTimeout)); err != nil {
				return err
			}
			if err := write(ctx, tx, out); err != nil {
				return err
			}
			return out.Flush()
		})
		switch {
		case err == nil:
			late.begin() // also of an answer without a byte
		case late.begun:
			callOf(ctx).cause = err
			panic(http.ErrAbortHandler)
		default:
			s.refuse(w, callOf(ctx), s.document(ctx, err).fault)
		}
	}}
}

// lateAnswer begins the answer with its first byte.
type lateAnswer struct {
	answer http.ResponseWriter
	media  string
	begun  bool
}

func (l *lateAnswer) begin() {
	if l.begun {
		return
	}
	l.begun = true
	l.answer.Header().Set("Content-Type", l.media)
	l.answer.WriteHeader(http.StatusOK)
}

// Write implements io.Writer.
func (l *lateAnswer) Write(p []byte) (int, error) {
	l.begin()
	return l.answer.Write(p)
}
