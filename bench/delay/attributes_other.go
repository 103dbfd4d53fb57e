//go:build !linux

package delay

import "syscall"

func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
