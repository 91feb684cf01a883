//go:build !linux

package eventtest

import "syscall"

// dieWithParent does nothing where the kernel has no such signal: the test's
// cleanup ends the child.
func dieWithParent(*syscall.SysProcAttr) {}
