// kindnetd replaces kind's own kindnetd, and only lets pods of two nodes reach each other. It gives the node's range of pod addresses to the
// CNI plugins, and adds routes for the ranges of the other nodes. It doesn't masquerade, since the network has no way out.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	period = 2 * time.Second
	target = "/etc/cni/net.d/10-kindnet.conflist"
	text   = `{"cniVersion": "0.3.1", "name": "kindnet", "plugins": [
  {"type": "ptp", "ipMasq": false, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state",
    "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	// The Service's address isn't used, since kube-proxy may not have set it up yet.
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		config.Host = "https://" + endpoint
	}
	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		found, err := nodes.List(ctx, meta.ListOptions{})
		if err != nil {
			log.Print(err)
		} else {
			for _, node := range found.Items {
				if err := connect(node, os.Getenv("HOST_IP")); err != nil {
					log.Printf("%s: %v", node.Name, err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// connect makes the pods of a node reachable from here. A node without addresses is skipped, and so is a fake node, which is no neighbour.
func connect(node core.Node, here string) error {
	_, pods, err := net.ParseCIDR(node.Spec.PodCIDR)
	if err != nil {
		return nil
	}
	for _, address := range node.Status.Addresses {
		if address.Type != core.NodeInternalIP {
			continue
		}
		if address.Address == here {
			return write(fmt.Sprintf(text, pods))
		}
		gateway := net.ParseIP(address.Address)
		routes, err := netlink.RouteGet(gateway)
		if err != nil || len(routes) == 0 || routes[0].Gw != nil {
			return nil
		}
		return netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: gateway})
	}
	return nil
}

// write replaces the file atomically, since the container runtime watches it, and only if its content changes.
func write(config string) error {
	if old, err := os.ReadFile(target); err == nil && string(old) == config {
		return nil
	}
	if err := os.WriteFile(target+".new", []byte(config), 0o644); err != nil {
		return err
	}
	return os.Rename(target+".new", target)
}
