package chaos

import "syscall"

// childAttributes makes the kernel kill every app when the driver ends. Otherwise a frozen app would stay, because it
// does not notice that its standard input is closed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
