// rendezvous is a training job that trains nothing. Rank 0 waits until all other ranks have called, and answers them; then all ranks exit
// with status 0. A rank without the others waits until its time is over, as real ranks do.
//
//	rendezvous ADDRESS RANK SIZE [SECONDS]    ADDRESS is that of rank 0, such as job-0.job:7777; exits with status 1 after SECONDS
//	rendezvous pause                          do nothing until a signal
//	rendezvous fill FILE MEBIBYTES            write a file, do nothing until a signal, and exit with status 1: if all containers of an evicted
//	                                          pod exited with 0, the pod would have succeeded, and its kubelet would forget the reason
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "pause":
		pause(0)
	case len(os.Args) == 4 && os.Args[1] == "fill":
		if err := os.WriteFile(os.Args[2], make([]byte, number(os.Args[3])<<20), 0o644); err != nil {
			fail("%v", err)
		}
		pause(1)
	case len(os.Args) < 4:
		fail("usage: rendezvous ADDRESS RANK SIZE [SECONDS] | pause | fill FILE MEBIBYTES")
	}
	rank, size, patience := number(os.Args[2]), number(os.Args[3]), 120
	if len(os.Args) > 4 {
		patience = number(os.Args[4])
	}
	deadline := time.Now().Add(time.Duration(patience) * time.Second)
	if rank == 0 {
		wait(os.Args[1], size, deadline)
	} else {
		call(os.Args[1], rank, deadline)
	}
	fmt.Printf("rank %d of %d: all are there\n", rank, size)
}

func pause(status int) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	os.Exit(status)
}

func wait(address string, size int, deadline time.Time) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		fail("%v", err)
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		fail("%v", err)
	}
	listener.(*net.TCPListener).SetDeadline(deadline)
	callers := map[byte]net.Conn{}
	for len(callers) < size-1 {
		connection, err := listener.Accept()
		if err != nil {
			fail("%d of %d have called: %v", len(callers), size-1, err)
		}
		rank := []byte{0}
		if _, err := io.ReadFull(connection, rank); err == nil {
			callers[rank[0]] = connection
		}
	}
	for _, connection := range callers {
		connection.Write([]byte{1})
		connection.Close()
	}
}

// call retries until the deadline: the name may not be resolved yet, and rank 0 may not listen yet.
func call(address string, rank int, deadline time.Time) {
	var last error
	for time.Now().Before(deadline) {
		connection, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			connection.SetDeadline(deadline)
			_, err = connection.Write([]byte{byte(rank)})
			if err == nil {
				_, err = io.ReadFull(connection, []byte{0})
			}
			connection.Close()
			if err == nil {
				return
			}
		}
		last = err
		time.Sleep(100 * time.Millisecond)
	}
	fail("rank %d has not been answered: %v", rank, last)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		fail("%q is no number", text)
	}
	return value
}

func fail(format string, words ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", words...)
	os.Exit(1)
}
