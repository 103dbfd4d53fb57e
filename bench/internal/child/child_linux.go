package child

import "syscall"

// Attributes returns the attributes of a child process that runs as owner. A nil owner means this process's user. A
// Ctrl-C in the terminal does not reach the child. The child receives signal when this process ends, even if it is
// killed.
func Attributes(owner *syscall.Credential, signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Setpgid: true, Pdeathsig: signal}
}
