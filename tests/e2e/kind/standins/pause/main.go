// pause holds the namespaces of a pod until it is told to end, and reaps whatever process is left to it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 16)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for one := range told {
		if one != syscall.SIGCHLD {
			return
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
	}
}
