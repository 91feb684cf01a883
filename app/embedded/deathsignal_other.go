//go:build !linux && !freebsd

package embedded

import "syscall"

// setDeathSignal does nothing: this kernel has no such signal, and the next
// start stops what a killed hubn left behind.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
