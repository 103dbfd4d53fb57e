//go:build !linux

package child

import "syscall"

// Attributes cannot see to the child's end here.
func Attributes(owner *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Setpgid: true}
}
