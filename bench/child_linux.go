package bench

import "syscall"

// childOf is how a server of ours runs: as its owner, not interrupted from the terminal before we have ended it,
// and not longer than this process, however that ends.
func childOf(owner *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
