package registry

import (
	"strconv"
	"strings"

	"hubn/app/problem"
)

// etag is the strong validator of a revision (RFC 9110 section 8.8.3).
func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// matches guards a change of an object: the client names the revision that it
// decided on. current is what the object is now, for the client to look at.
func matches(ifMatch string, revision int64, current any) error {
	now := etag(revision)
	if strings.TrimSpace(ifMatch) == "" {
		return problem.New(problem.PreconditionRequired,
			"a change names what it changes: send If-Match with the ETag of the object that you read (now %s)", now).With("etag", now)
	}
	for candidate := range strings.SplitSeq(ifMatch, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == now || candidate == "*" {
			return nil
		}
	}
	return problem.New(problem.Stale,
		"the object changed since you read it: it is at %s, you have %s; read it again and decide anew", now, ifMatch).
		With("etag", now).With("current", current)
}
