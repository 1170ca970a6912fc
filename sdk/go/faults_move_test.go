package sluicegate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/wire"
)

// startSentinels starts three sentinels that watch a master, and gives their addresses.
func startSentinels(t *testing.T, master string) (addrs []string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master)
	for range 3 {
		addr := freeAddr()
		_, own, _ := net.SplitHostPort(addr)
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor gate %s %s 2\nsentinel down-after-milliseconds gate 1000\n"+
			"sentinel failover-timeout gate 6000\n", own, host, port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(redisServer(), file, "--sentinel")
		if err := cmd.Start(); err != nil {
			skipOrFail(t, err.Error())
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		addrs = append(addrs, addr)
	}
	for _, addr := range addrs {
		node := redis.NewSentinelClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { node.Close() })
		eventually(t, "the sentinels do not find each other and the replica", func() bool {
			info, err := node.Master(context.Background(), "gate").Result()
			return err == nil && info["num-other-sentinels"] == "2" && info["num-slaves"] == "1"
		})
	}
	return addrs
}

func TestAfterAFailoverTheNewMasterDecides(t *testing.T) {
	ctx, addr, replica := context.Background(), freeAddr(), freeAddr()
	master, err := startRedis(addr, "--dir", t.TempDir())
	if err != nil {
		skipOrFail(t, err.Error())
	}
	t.Cleanup(func() { _ = master.Process.Kill(); _ = master.Wait() })
	host, port, _ := net.SplitHostPort(addr)
	second, err := startRedis(replica, "--dir", t.TempDir(), "--replicaof", host, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Process.Kill(); _ = second.Wait() })
	sentinels := startSentinels(t, addr)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "gate", SentinelAddrs: sentinels, ContextTimeoutEnabled: true})
	defer client.Close()
	publish(t, addr, 1, FixedWindow(100, 365*24*time.Hour))
	gate, err := Direct(client, App("shop"), Deadline(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	a := gate.Policy("a")
	eventually(t, "the master does not decide", func() bool {
		d, err := a.AllowN(ctx, "k", 30)
		return err == nil && d.Mode == ModeStore
	})
	eventually(t, "the replica does not follow", func() bool {
		n, err := dial(t, addr).Wait(ctx, 1, time.Second).Result()
		return err == nil && n == 1
	})
	if err := master.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	if d, err := a.Peek(ctx, "k", 1); err != nil || d.Mode != ModeLocal {
		t.Errorf("%+v, %v", d, err)
	}
	eventually(t, "the new master does not decide", func() bool {
		d, err := a.Peek(ctx, "k", 1)
		return err == nil && d.Mode == ModeStore && d.Remaining <= 70
	})
	t.Logf("the new master decides after %v", time.Since(killed))
	publish(t, replica, 2, FixedWindow(7, 365*24*time.Hour))
	eventually(t, "the policies of the new master are not followed", func() bool {
		d, err := a.Peek(ctx, "k", 1)
		return err == nil && d.Mode == ModeStore && d.Limit == 7
	})
}

// TestASlotMovesWhileItsKeyIsInUse moves the slot of a key to a master that does not know the script, key by key as
// `redis-cli --cluster reshard` does, while callers take from that key.
func TestASlotMovesWhileItsKeyIsInUse(t *testing.T) {
	ctx, addrs := context.Background(), startCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true, ReadTimeout: patient})
	defer client.Close()
	gate, err := Direct(client, Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	hot, err := gate.Limit("hot", FixedWindow(1_000_000, 366*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	hot = onFailure(t, hot, FailDeny)
	var passed, failed, ended atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(4, func(int) {
			for ended.Load() == 0 {
				d, err := hot.Allow(ctx, "k")
				switch {
				case err != nil || d.Mode != ModeStore && d.Mode != ModeDeny:
					t.Errorf("%+v, %v", d, err)
					return
				case d.Allowed:
					passed.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}()
	progress := func() {
		before := passed.Load() + failed.Load()
		eventually(t, "nobody is answered", func() bool { return passed.Load()+failed.Load() >= before+20 })
	}
	key := wire.StateKey("limit:hot", "k")
	slot, err := client.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	at := int(slot) / 5462
	ids := make([]string, len(addrs))
	for i, addr := range addrs {
		if ids[i], err = dial(t, addr).Do(ctx, "cluster", "myid").Text(); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		progress()
		to := (at + 1) % len(addrs)
		from, target := dial(t, addrs[at]), dial(t, addrs[to])
		host, port, _ := net.SplitHostPort(addrs[to])
		for _, step := range []error{
			target.Do(ctx, "cluster", "setslot", slot, "importing", ids[at]).Err(),
			from.Do(ctx, "cluster", "setslot", slot, "migrating", ids[to]).Err(),
			from.Migrate(ctx, host, port, key, 0, 5*time.Second).Err(),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
		progress() // the slot is at both
		for _, node := range []*redis.Client{target, from, dial(t, addrs[3-at-to])} {
			if err := node.Do(ctx, "cluster", "setslot", slot, "node", ids[to]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		at = to
	}
	progress()
	ended.Store(1)
	<-done
	d, err := hot.Peek(ctx, "k", 1)
	if err != nil || d.Mode != ModeStore {
		t.Fatalf("%+v, %v", d, err)
	}
	charged := 1_000_000 - d.Remaining
	t.Logf("%d passed, %d by the failure policy, %d charged", passed.Load(), failed.Load(), charged)
	// Requests that the failure policy refused were perhaps charged, once.
	if charged < passed.Load() || charged > passed.Load()+failed.Load() {
		t.Errorf("%d charged, %d passed and %d by the failure policy", charged, passed.Load(), failed.Load())
	}
	if failed.Load() > 0 {
		t.Errorf("%d by the failure policy, expected none: a slot that moves is no failure", failed.Load())
	}
}

func TestAFullRedisIsAStoreThatFailsUntilThereIsRoom(t *testing.T) {
	addr, ctx := freeAddr(), context.Background()
	server, err := startRedis(addr)
	if err != nil {
		skipOrFail(t, err.Error())
	}
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	var log outageLog
	admin, gate := dial(t, addr), direct(t, addr, Logger(slog.New(&log)))
	mail, err := gate.Limit("mail", FixedWindow(10, 366*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if d, err := mail.Allow(ctx, "k"); err != nil || d.Remaining != 9 {
		t.Fatalf("%+v, %v", d, err)
	}
	info, err := admin.Info(ctx, "memory").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(info, "used_memory:")
	var used int64
	if _, err := fmt.Sscan(after, &used); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"maxmemory-policy": "noeviction", "maxmemory": fmt.Sprint(used - 1)} {
		if err := admin.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	passed := int64(1)
	for range 20 {
		d, err := mail.Allow(ctx, "k")
		if err != nil || d.Mode != ModeLocal {
			t.Fatalf("local: %+v, %v", d, err)
		}
		if d.Allowed {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("%d of 10 passed, the first by Redis", passed)
	}
	if d, err := onFailure(t, mail, FailAllow).Allow(ctx, "other"); err != nil || !d.Allowed || d.Mode != ModeAllow {
		t.Errorf("allow: %+v, %v", d, err)
	}
	if d, err := onFailure(t, mail, FailDeny).Allow(ctx, "third"); err != nil || d.Allowed || d.Mode != ModeDeny {
		t.Errorf("deny: %+v, %v", d, err)
	}
	if log.began.Load() == 0 {
		t.Error("the breaker is closed")
	}
	if err := admin.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what passed under `local` is charged", func() bool {
		d, err := mail.Allow(ctx, "k")
		if d.Allowed {
			t.Errorf("the eleventh of 10: %+v, %v", d, err)
		}
		return err == nil && d.Mode == ModeStore
	})
	eventually(t, "what passed under `allow` is not charged", func() bool {
		d, err := mail.Peek(ctx, "other", 1)
		return err == nil && d.Remaining == 9
	})
}

func TestADatabaseHasItsOwnPoliciesAndBudgets(t *testing.T) {
	addr, ctx := redisAddr(t), context.Background()
	publish(t, addr, 1, FixedWindow(5, 365*24*time.Hour))
	client := redis.NewClient(&redis.Options{Addr: addr, DB: 3, ContextTimeoutEnabled: true})
	defer client.Close()
	gate, err := Direct(client, App("shop"), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	if _, err := gate.Policy("a").Allow(ctx, "k"); !errors.Is(err, ErrNothingPublished) || !strings.Contains(err.Error(), addr+"/3;") {
		t.Errorf("a policy of another database: %v", err)
	}
	for _, g := range []*Gate{gate, direct(t, addr)} {
		mail, _ := g.Limit("mail", FixedWindow(5, 366*24*time.Hour))
		if d, err := mail.Allow(ctx, "k"); err != nil || d.Remaining != 4 {
			t.Errorf("%+v, %v", d, err)
		}
	}
}
