//go:build !linux

package child

import "syscall"

// Attributes returns the attributes of a child process that runs as owner. On this system the child may outlive this
// process.
func Attributes(owner *syscall.Credential, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Setpgid: true}
}
