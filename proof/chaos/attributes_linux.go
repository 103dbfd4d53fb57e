package chaos

import "syscall"

// childAttributes lets no app outlive the driver, not even a frozen one, which would not see its orders end.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
