package sluicegate

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluicegate/sluicegate/sdk/go/internal/policy"
)

// startCluster starts three masters that share the slots.
func startCluster(t *testing.T) []string {
	t.Helper()
	ctx, addrs := context.Background(), []string(nil)
	for len(addrs) < 3 {
		addr := freeAddr()
		host, port, _ := net.SplitHostPort(addr)
		var number int
		_, _ = fmt.Sscan(port, &number)
		if number > 55_000 {
			continue // the bus is at 10,000 more
		}
		cmd := exec.Command(redisServer(), "--port", port, "--save", "", "--bind", host, "--cluster-enabled", "yes",
			"--cluster-config-file", "nodes.conf", "--dir", t.TempDir())
		if err := cmd.Start(); err != nil {
			skipOrFail(t, err.Error())
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		addrs = append(addrs, addr)
	}
	for i, addr := range addrs {
		node := dial(t, addr)
		eventually(t, "a node does not listen", func() bool { return node.Ping(ctx).Err() == nil })
		if err := node.ClusterAddSlotsRange(ctx, i*5462, min(i*5462+5461, 16_383)).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := net.SplitHostPort(addrs[0])
		if err := node.ClusterMeet(ctx, host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range addrs {
		node := dial(t, addr)
		for range 4 {
			eventually(t, "the nodes do not meet", func() bool {
				info, err := node.ClusterInfo(ctx).Result()
				nodes, _ := node.ClusterNodes(ctx).Result()
				return err == nil && len(info) > 16 && info[:16] == "cluster_state:ok" && len(nodes) > 0
			})
			time.Sleep(100 * time.Millisecond)
		}
	}
	return addrs
}

func TestAClusterDecides(t *testing.T) {
	ctx, addrs := context.Background(), startCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	defer client.Close()
	eventually(t, "the policies cannot be published", func() bool {
		return client.HSet(ctx, policy.PoliciesKey, "#format", "1", "#revision", "1", "a", recordOf(t, 1, FixedWindow(3, time.Hour))).Err() == nil
	})
	gate, err := Direct(client, App("shop"), Deadline(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	for i := range 60 {
		for range 2 {
			d, err := gate.Policy("a").Allow(ctx, fmt.Sprint(i))
			if err != nil || !d.Allowed || d.Mode != ModeStore {
				t.Fatalf("%d: %+v, %v", i, d, err)
			}
		}
	}
	for _, addr := range addrs {
		if n, _ := dial(t, addr).DBSize(ctx).Result(); n < 5 {
			t.Errorf("%d keys at %s", n, addr)
		}
	}
}
