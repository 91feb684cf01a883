//go:build linux

package eventtest

import "syscall"

// dieWithParent makes the kernel end the child when the test's process is gone,
// however it went.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
