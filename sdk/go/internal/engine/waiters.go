package engine

import (
	"context"
	"crypto/rand"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/kernel"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// outgoingMax is how many calls of requests of other processes are on their way at most: those that are left out ask within a second.
const outgoingMax = 1_024

// waiters are the requests of this process that wait for a permit of a `concurrency` rule. Their order is that of their tickets in Redis. A
// request that is called asks again, and takes its permit; an answer that frees or grants a permit names the requests that can, and
// those of other processes are called by a message. If that is lost, the first request of a key in this process asks anyway
// after a second, which also keeps the tickets of all others.
type waiters struct {
	process kernel.ProcessID

	mu       sync.Mutex
	lines    map[string]*line // by where the state is
	byPermit map[kernel.PermitID][]*waiter

	entered  chan struct{} // closed when the first request waits
	once     sync.Once
	outgoing chan []kernel.Called
	isMute   atomic.Bool // Redis does not let this program send messages
}

// line is the requests that wait for a permit of one key.
type line struct {
	list     []*waiter // in the order in which they came here
	present  int64     // when one of them last asked
	unwanted []kernel.PermitID
}

// waiter is a request that waits.
type waiter struct {
	place  string
	permit kernel.PermitID
	called bool
	nudge  context.CancelFunc // ends its pause; nil: it makes none
}

func newWaiters() *waiters {
	w := &waiters{
		lines: map[string]*line{}, byPermit: map[kernel.PermitID][]*waiter{}, entered: make(chan struct{}), outgoing: make(chan []kernel.Called, outgoingMax),
	}
	_, _ = rand.Read(w.process[:]) // never fails
	return w
}

// enter has a request wait; nil if another one waits under its id, of which only one can hold the permit.
func (w *waiters) enter(place string, permit kernel.PermitID) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waitsHere(place, permit) {
		return nil
	}
	waits := w.lines[place]
	if waits == nil {
		waits = &line{}
		w.lines[place] = waits
	}
	one := &waiter{place: place, permit: permit}
	waits.list = append(waits.list, one)
	w.byPermit[permit] = append(w.byPermit[permit], one)
	w.once.Do(func() { close(w.entered) })
	return one
}

// Waiting returns how many requests wait for a permit.
func (e *Engine) Waiting() (n int) {
	e.waiters.mu.Lock()
	defer e.waiters.mu.Unlock()
	for _, waits := range e.waiters.lines {
		n += len(waits.list)
	}
	return n
}

// IsMute reports whether Redis does not let this program call requests of others, which ask within a second then.
func (e *Engine) IsMute() bool { return e.waiters.isMute.Load() }

// waits reports whether a request waits for a permit of a key.
func (w *waiters) waits(place string, permit kernel.PermitID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waitsHere(place, permit)
}

// waitsHere is waits, under the lock.
func (w *waiters) waitsHere(place string, permit kernel.PermitID) bool {
	return slices.ContainsFunc(w.byPermit[permit], func(other *waiter) bool { return other.place == place })
}

// leave has a request wait no longer. If it was the first of its key, the next one is that now.
func (w *waiters) leave(one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isIt := func(other *waiter) bool { return other == one }
	if w.byPermit[one.permit] = slices.DeleteFunc(w.byPermit[one.permit], isIt); len(w.byPermit[one.permit]) == 0 {
		delete(w.byPermit, one.permit)
	}
	waits := w.lines[one.place]
	wasFirst := waits.list[0] == one
	waits.list = slices.DeleteFunc(waits.list, isIt)
	switch {
	case len(waits.list) == 0:
		delete(w.lines, one.place)
	case wasFirst:
		waits.list[0].wake()
	}
}

// wake ends the pause of a request.
func (one *waiter) wake() {
	if one.nudge != nil {
		one.nudge()
	}
}

// call calls the requests of this process, and returns those of others.
func (w *waiters) call(called []kernel.Called) (others []kernel.Called) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range called {
		if c.Process != w.process {
			others = append(others, c)
			continue
		}
		for _, one := range w.byPermit[c.Permit] {
			one.called = true
			one.wake()
		}
	}
	return others
}

// noteUnwanted keeps which of the permits that were called no request of this process wants. Without requests of the key Redis forgets
// their tickets.
func (w *waiters) noteUnwanted(place string, called []kernel.Called) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.lines[place]
	if waits == nil {
		return
	}
	waits.unwanted = nil
	for _, c := range called {
		if c.Process == w.process && !w.waitsHere(place, c.Permit) {
			waits.unwanted = append(waits.unwanted, c.Permit)
		}
	}
}

// takeUnwanted takes these permits, without those that a request wants by now.
func (w *waiters) takeUnwanted(one *waiter) []kernel.PermitID {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.lines[one.place]
	unwanted := waits.unwanted
	waits.unwanted = nil
	return slices.DeleteFunc(unwanted, func(permit kernel.PermitID) bool { return w.waitsHere(one.place, permit) })
}

// keepPresent notes that a request asked, and reports whether it is the first of its key.
func (w *waiters) keepPresent(one *waiter, nowUS int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := w.lines[one.place]
	waits.present = nowUS
	return waits.list[0] == one
}

// beginPause begins a pause of a request, which nudge ends. It reports whether the request was called before, and until when it
// may sleep: the first of a key until a second after one of them asked, or due; others until they are called.
func (w *waiters) beginPause(one *waiter, due, until int64, nudge context.CancelFunc) (called bool, wakeAt int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.called {
		one.called, one.nudge = false, nil
		return true, 0
	}
	one.nudge = nudge
	if waits := w.lines[one.place]; waits.list[0] == one {
		until = min(until, due, waits.present+lookEveryUS)
	}
	return false, until
}

// endPause ends a pause, and reports whether the request was called, or is the first of its key and asks without that.
func (w *waiters) endPause(one *waiter) (called, isFirst bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	called = one.called
	one.called, one.nudge = false, nil
	return called, w.lines[one.place].list[0] == one
}

// send has requests of other processes called there, if there is room.
func (w *waiters) send(others []kernel.Called) {
	if len(others) == 0 || w.isMute.Load() {
		return
	}
	select {
	case w.outgoing <- others:
	default:
	}
}

// passCalls passes calls on, from other processes and to them, once a request has waited or others are to be called, until
// the context ends.
func (e *Engine) passCalls(ctx context.Context) {
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case others := <-e.waiters.outgoing:
				e.publish(ctx, others)
			}
		}
	}()
	select {
	case <-ctx.Done():
		return
	case <-e.waiters.entered:
	}
	messages := e.Redis.Subscribe(ctx, wire.CallsChannel)
	defer messages.Close()
	for channel := messages.Channel(redis.WithChannelSize(outgoingMax)); ; {
		select {
		case <-ctx.Done():
			return
		case message, ok := <-channel:
			if !ok {
				return // closed with the client
			}
			// Other clients may publish other bytes on the channel.
			if called, ok := wire.ReadCalled(message.Payload); ok {
				e.waiters.call(called)
			}
		}
	}
}

// publish calls requests of other processes. What is lost is found within a second.
func (e *Engine) publish(ctx context.Context, others []kernel.Called) {
	ctx, cancel := context.WithTimeout(ctx, e.Deadline)
	defer cancel()
	_, err := wire.Conn{Client: e.Redis}.Once(ctx, e.Redis, "publish", wire.CallsChannel, wire.CalledBytes(others))
	if wire.ErrorName(err) == "NOPERM" {
		e.waiters.isMute.Store(true)
	}
}
