package testkit

import (
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// Accept hands each connection to a free address, which it returns, to pass.
func Accept(t testing.TB, pass func(near net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go pass(near)
		}
	}()
	return l.Addr().String()
}

// SlowRelay passes a Redis on whose replies come later: all of them, or the first of each connection.
type SlowRelay struct {
	Addr         string
	Later, First atomic.Int64 // ns
}

// NewSlowRelay starts a relay to an address.
func NewSlowRelay(t testing.TB, to string, first, later time.Duration) *SlowRelay {
	t.Helper()
	r := &SlowRelay{}
	r.First.Store(int64(first))
	r.Later.Store(int64(later))
	r.Addr = Accept(t, func(near net.Conn) { r.Pass(near, to) })
	return r
}

// Pass passes one connection on, until one of its sides ends it.
func (r *SlowRelay) Pass(near net.Conn, to string) {
	defer near.Close()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer far.Close()
	go func() {
		defer near.Close()
		in := make([]byte, 1<<17)
		for pause := &r.First; ; pause = &r.Later {
			n, err := far.Read(in)
			if err != nil {
				return
			}
			time.Sleep(time.Duration(pause.Load()))
			if _, err := near.Write(in[:n]); err != nil {
				return
			}
		}
	}()
	in := make([]byte, 1<<17)
	for {
		n, err := near.Read(in)
		if err != nil {
			return
		}
		if _, err := far.Write(in[:n]); err != nil {
			return
		}
	}
}
