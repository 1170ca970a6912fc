package sluicegate

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// farAway gives the address of a Redis whose every reply comes so much later.
func farAway(t *testing.T, to string, later time.Duration) string {
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
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				return
			}
			t.Cleanup(func() { near.Close(); far.Close() })
			go func() { defer far.Close(); io.Copy(far, near) }()
			go func() {
				defer near.Close()
				buffer := make([]byte, 1<<16)
				for {
					n, err := far.Read(buffer)
					if err != nil {
						return
					}
					time.Sleep(later)
					if _, err := near.Write(buffer[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Dial, greeting, script and question together take four round trips; a question may take less than two.
func TestAConnectionThatTakesLongerThanAQuestionIsMade(t *testing.T) {
	const away = 100 * time.Millisecond
	client := redis.NewClient(&redis.Options{Addr: farAway(t, redisAddr(t), away), ContextTimeoutEnabled: true})
	defer client.Close()
	store := newRedisStore(redisConn{client}, away*3/2, time.Now, func() clock { return clockServer })
	life, stop := context.WithCancel(context.Background())
	defer stop()
	store.life = life
	p := planOf(t, 1, FixedWindow(9, time.Hour))
	q := question{plan: p, key: stateKey("far", "k"), request: request{verb: verbCheck, cost: 1}}
	var f *failure
	for range 50 {
		if _, f = store.ask(context.Background(), q); f == nil {
			return
		}
	}
	t.Fatalf("no question is decided: %v", f)
}
