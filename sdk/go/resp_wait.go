package sluicegate

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/engine"
	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// respWaitsMax is how many requests of a gate wait at the server at a time. Each has a connection to itself, because a server answers
// the commands of a connection in order: as many as other requests have, of the 2,048 that a server accepts.
const respWaitsMax = respConnsMax

// respGoneWithin is how long the answer to a request is awaited whose caller went away. A server notices that after 100 ms, and may grant
// the permit until then.
const respGoneWithin = 250 * time.Millisecond

// waitConns are the connections of requests that wait for a permit.
type waitConns struct {
	options redis.Options
	slots   chan struct{} // one for each request at the server

	mu     sync.Mutex
	open   map[*waitConn]struct{}
	idle   []*waitConn // those of them that no request uses
	closed bool
}

// waitConn is a client with one connection. The library does not end a read with its context, so a caller who goes away
// ends its side of the connection itself: otherwise the server would let the request wait on.
type waitConn struct {
	*redis.Client
	conn atomic.Pointer[net.Conn] // nil: not connected yet
}

func newWaitConn(of redis.Options) *waitConn {
	w := &waitConn{}
	dial := redis.NewDialer(&of)
	of.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			w.conn.Store(&conn)
		}
		return conn, err
	}
	w.Client = redis.NewClient(&of)
	return w
}

// giveUp ends the caller's side of the connection. The server answers what it has granted already, or ends its side.
func (w *waitConn) giveUp(stop context.CancelFunc) {
	if conn := w.conn.Load(); conn != nil {
		if half, ok := (*conn).(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			time.AfterFunc(respGoneWithin, func() { _ = w.Close() }) // it has been closed before
			return
		}
	}
	stop()
	_ = w.Close()
}

// newWaitConns returns connections like those of a pool.
func newWaitConns(of redis.Options) *waitConns {
	of.PoolSize, of.ReadTimeout, of.DialTimeout = 1, -1, deadlineMax // the deadline is that of the context
	return &waitConns{options: of, slots: make(chan struct{}, respWaitsMax), open: map[*waitConn]struct{}{}}
}

// enter waits until fewer than respWaitsMax requests are at the server, for left at most. It returns what is left of that, and false if
// others were there all the time. leave ends it.
func (w *waitConns) enter(ctx context.Context, left time.Duration) (time.Duration, bool) {
	select {
	case w.slots <- struct{}{}:
		return left, true
	default:
	}
	began := time.Now()
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case w.slots <- struct{}{}:
		return max(left-time.Since(began), 0), true
	case <-timer.C:
	case <-ctx.Done():
	}
	return 0, false
}

func (w *waitConns) leave() { <-w.slots }

// once sends a command on a connection of its own, with a deadline. If the context ends before the answer, what was granted by then is
// an answer still.
func (w *waitConns) once(ctx context.Context, within time.Duration, args []any) (any, error) {
	client := w.take()
	limited, stop := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer stop()
	inUse := context.AfterFunc(ctx, func() { client.giveUp(stop) })
	got, err := wire.Conn{Client: client.Client}.Once(limited, client.Client, args...)
	w.put(client, inUse() && limited.Err() == nil)
	return got, err
}

// take returns a client that no other request uses.
func (w *waitConns) take() *waitConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last := len(w.idle) - 1; last >= 0 {
		client := w.idle[last]
		w.idle = w.idle[:last]
		return client
	}
	client := newWaitConn(w.options)
	w.open[client] = struct{}{}
	if w.closed {
		_ = client.Close()
	}
	return client
}

// put takes a client back, for the next request if it can have one.
func (w *waitConns) put(client *waitConn, usable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if usable && !w.closed {
		w.idle = append(w.idle, client)
		return
	}
	delete(w.open, client)
	_ = client.Close() // it has been closed before
}

// close closes all connections, and so ends the requests that wait.
func (w *waitConns) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.idle = true, nil
	for client := range w.open {
		_ = client.Close() // it has been closed before
	}
}

// decideWaiting sends an acquire that waits for a permit.
func (r *resp) decideWaiting(ctx context.Context, request engine.Request, args []any) (Decision, error) {
	left, entered := r.waits.enter(ctx, kernel.Span(request.MaxWait))
	if entered {
		defer r.waits.leave()
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, storeError(&wire.Failure{Class: wire.ClassCaller, Cause: err}, "")
	}
	args = append(args, "MAXWAIT", min(left.Milliseconds(), respWaitMaxMS))
	limited, cancel := context.WithTimeout(ctx, r.deadline+left)
	defer cancel()
	var got any
	var err error
	if entered {
		got, err = r.waits.once(ctx, r.deadline+left, args)
	} else { // there is no time left to wait, so it does not hold up a connection of others
		got, err = r.conn.Once(limited, r.client, args...)
	}
	if gone := ctx.Err(); gone != nil && err == nil { // the caller has the id to release
		return Decision{}, storeError(&wire.Failure{Class: wire.ClassCaller, Charged: true, Cause: gone}, "")
	}
	if err != nil {
		return Decision{}, r.failed(ctx, limited, request, err)
	}
	return respDecision(request, got)
}
