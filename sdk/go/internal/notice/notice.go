// Package notice logs what goes wrong: one line a minute for each cause, and one line when it is over.
package notice

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

const (
	// Every is how often a cause is logged while it lasts.
	Every = time.Minute
	// causesMax is how many causes are kept: each policy of a program has a few, and names of policies may come from requests. What
	// finds no room is not logged.
	causesMax = 1000
	// waitingMax is how many lines wait for a logger that stands still: each cause has two, its beginning and its end. What finds no
	// room is not logged.
	waitingMax = 2 * causesMax
)

// Log logs causes. A nil Log logs nothing.
type Log struct {
	logger *slog.Logger
	now    func() time.Time

	open   atomic.Int64 // causes that were logged and are not over
	mu     sync.Mutex
	count  int
	scopes map[string]map[string]*cause

	waiting []line // lines that are not written yet
	writing bool
}

// line is what the logger gets.
type line struct {
	level   slog.Level
	message string
	args    []any
}

// cause is one reason of what goes wrong in a scope.
type cause struct {
	began, loggedAt time.Time
	open            bool
	omitted         int // lines that were left out since
}

// New returns a log of causes.
func New(logger *slog.Logger, now func() time.Time) *Log {
	return &Log{logger: logger, now: now, scopes: map[string]map[string]*cause{}}
}

// Warn logs a cause of a scope, unless a line of it is less than a minute old.
func (l *Log) Warn(scope, kind, message string, args ...any) {
	l.log(slog.LevelWarn, scope, kind, message, args)
}

// Debug does the same at debug level: for mistakes of clients, of which operators need to see nothing. They are never over.
func (l *Log) Debug(scope, kind, message string, args ...any) {
	if l != nil && l.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.log(slog.LevelDebug, scope, kind, message, args)
	}
}

func (l *Log) log(level slog.Level, scope, kind, message string, args []any) {
	if l == nil {
		return
	}
	now := l.now()
	l.mu.Lock()
	omitted, due := l.due(now, scope, kind)
	if due {
		if omitted > 0 {
			args = append(args, "left_out", omitted)
		}
		l.wait(line{level, message, args})
	}
	l.mu.Unlock()
	if due {
		l.write()
	}
}

// wait puts a line behind those that wait. The caller holds the lock.
func (l *Log) wait(next line) {
	if len(l.waiting) < waitingMax {
		l.waiting = append(l.waiting, next)
	}
}

// write has the logger write what waits: outside of the lock, as a logger may ask the gate, and by one goroutine at a time, so that
// lines are in the order of what happened.
func (l *Log) write() {
	for next, ok := l.take(); ok; next, ok = l.take() {
		func() {
			defer l.written()
			l.logger.Log(context.Background(), next.level, next.message, next.args...)
		}()
	}
}

func (l *Log) take() (next line, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing || len(l.waiting) == 0 {
		return line{}, false
	}
	next, l.waiting, l.writing = l.waiting[0], l.waiting[1:], true
	return next, true
}

func (l *Log) written() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
}

// due reports whether a line of a cause is due, and how many were left out since the last one. The caller holds the lock.
func (l *Log) due(now time.Time, scope, kind string) (omitted int, due bool) {
	c := l.scopes[scope][kind]
	if c == nil {
		if l.count >= causesMax {
			l.makeRoom(now)
		}
		if l.count >= causesMax {
			return 0, false
		}
		if l.scopes[scope] == nil {
			l.scopes[scope] = map[string]*cause{}
		}
		c = &cause{}
		l.scopes[scope][kind] = c
		l.count++
	} else if since := now.Sub(c.loggedAt); since >= 0 && since < Every {
		c.omitted++
		return 0, false
	}
	if !c.open {
		c.open, c.began = true, now
		l.open.Add(1)
	}
	omitted, c.omitted, c.loggedAt = c.omitted, 0, now
	return omitted, true
}

// makeRoom forgets the causes of which no line was written for a minute.
func (l *Log) makeRoom(now time.Time) {
	for scope, kinds := range l.scopes {
		for kind, c := range kinds {
			if now.Sub(c.loggedAt) < Every {
				continue
			}
			if c.open {
				l.open.Add(-1)
			}
			delete(kinds, kind)
			l.count--
		}
		if len(kinds) == 0 {
			delete(l.scopes, scope)
		}
	}
}

// Quiet reports whether nothing that was logged is still wrong.
func (l *Log) Quiet() bool { return l == nil || l.open.Load() == 0 }

// Recovered logs that all causes of a scope are over, if one of them was logged. It costs little while nothing is wrong.
func (l *Log) Recovered(scope, message string, args ...any) {
	if l.Quiet() {
		return
	}
	now := l.now()
	l.mu.Lock()
	began, was := l.closeScope(scope)
	if was {
		l.wait(line{slog.LevelInfo, message, append(args, "after", now.Sub(began).Round(time.Millisecond))})
	}
	l.mu.Unlock()
	if was {
		l.write()
	}
}

// closeScope ends the causes of a scope, and returns when the first of them began. The caller holds the lock.
func (l *Log) closeScope(scope string) (began time.Time, was bool) {
	for _, c := range l.scopes[scope] {
		if !c.open {
			continue
		}
		if !was || c.began.Before(began) {
			began = c.began
		}
		was, c.open = true, false
		l.open.Add(-1)
	}
	return began, was
}

// KindOf returns a short word for the cause of an error, the same for all errors of that cause: their texts have ports and times.
func KindOf(err error) string {
	var timeout net.Error
	var record tls.RecordHeaderError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var resolved *net.DNSError
	switch name := wire.ErrorName(err); {
	case name != "":
		return lex.Short(name)
	case errors.As(err, &resolved):
		return "name"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &record), errors.As(err, &unknown), errors.As(err, &host):
		return "tls"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "closed"
	default:
		return "other"
	}
}
