package chaos

import "syscall"

// A frozen app does not notice that its standard input is closed, so the kernel kills it when the driver ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
