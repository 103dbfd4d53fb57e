package child

import "syscall"

// Attributes lets a child run as its owner, nil being this process's user, not interrupted from the terminal before we
// have ended it, and not longer than this process, however that ends: it gets signal then.
func Attributes(owner *syscall.Credential, signal syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Setpgid: true, Pdeathsig: signal}
}
