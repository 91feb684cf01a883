// Package embedded runs PostgreSQL and Redis for a HubN that was given neither:
// the programs of the system as supervised children, in folders and sockets
// that nobody else can open, and without a trace left when hubn is killed. It
// is a leaf: it imports nothing of the project. It does not migrate, and it
// does not restart a child that died; the supervisor of package app does.
//
// A child runs in a process group of its own, so that Ctrl-C reaches hubn alone
// and hubn stops things in order, and is told by the kernel to stop when hubn is
// gone, where the kernel can do that. Where it cannot, the next start finds the
// leftover by its socket or password, stops it and takes the folder over.
package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"
)

const (
	// pollEvery is the pause between two looks at something that has no
	// notification: a socket that is to appear, a port that is to become free.
	// PostgreSQL is ready after 65 ms at the earliest, so 10 ms costs nothing.
	pollEvery = 10 * time.Millisecond

	// stopTimeout bounds an orderly stop. A fast shutdown writes a checkpoint
	// of at most shared_buffers, well under a second; a slow disk may need
	// longer, and killing would trade a wait for a recovery.
	stopTimeout = 60 * time.Second
)

// folderHash names a folder in places where its path is too long or may not be
// repeated: 16 hexadecimal digits of the SHA-256 of the resolved path.
func folderHash(dir string) string {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8])
}
