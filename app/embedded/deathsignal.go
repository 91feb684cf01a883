//go:build linux || freebsd

package embedded

import "syscall"

// setDeathSignal makes the kernel send the child a signal when hubn is gone.
func setDeathSignal(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }
