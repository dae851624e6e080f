// A stand-in for kindnetd, which no package registry offers. On every node it keeps three things as they
// should be: the CNI configuration with the node's own range of pod addresses, a route to each other node's
// range, and one rule that masquerades what leaves the pods' subnet. IPv4 only.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	conflistPath = "/etc/cni/net.d/10-kindnet.conflist"
	conflist     = `{
  "cniVersion": "0.4.0",
  "name": "kindnet",
  "plugins": [
    {
      "type": "ptp",
      "ipMasq": false,
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`
	requestTimeout = 10 * time.Second
	// Nodes come one after the other while the cluster starts; later they hardly ever change.
	earlyInterval = time.Second
	calmInterval  = 5 * time.Second
	earlyRounds   = 30
)

func main() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	// The API server by the name that kind gives it: kube-proxy, which makes the service address work, may
	// start later than this.
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" {
		config.Host = "https://" + endpoint
	}
	config.Timeout = requestTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	for round := 0; ; round++ {
		if err := reconcile(client, os.Getenv("NODE_NAME"), os.Getenv("POD_SUBNET")); err != nil {
			log.Print(err)
		}
		if round < earlyRounds {
			time.Sleep(earlyInterval)
		} else {
			time.Sleep(calmInterval)
		}
	}
}

func reconcile(client kubernetes.Interface, ownName, podSubnet string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	nodes, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{})
	if err != nil {
		return err
	}
	for _, node := range nodes.Items {
		switch {
		case node.Spec.PodCIDR == "":
			continue
		case node.Name == ownName:
			err = writeConflist(node.Spec.PodCIDR)
		default:
			err = routeTo(node)
		}
		if err != nil {
			return err
		}
	}
	return masquerade(podSubnet)
}

func writeConflist(podRange string) error {
	wanted := fmt.Sprintf(conflist, podRange)
	if present, err := os.ReadFile(conflistPath); err == nil && string(present) == wanted {
		return nil
	}
	// Renamed into place, so that containerd never reads half of it.
	draft := conflistPath + ".draft"
	if err := os.WriteFile(draft, []byte(wanted), 0o644); err != nil {
		return err
	}
	return os.Rename(draft, conflistPath)
}

func routeTo(node core.Node) error {
	for _, address := range node.Status.Addresses {
		if address.Type == core.NodeInternalIP && !strings.Contains(address.Address, ":") {
			return run("ip", "route", "replace", node.Spec.PodCIDR, "via", address.Address)
		}
	}
	return nil
}

func masquerade(podSubnet string) error {
	rule := []string{
		"POSTROUTING", "-s", podSubnet, "!", "-d", podSubnet,
		"-m", "addrtype", "!", "--dst-type", "LOCAL", "-j", "MASQUERADE",
	}
	iptables := []string{"iptables", "-w", "-t", "nat"}
	if run(append(append(iptables[:4:4], "-C"), rule...)...) == nil {
		return nil
	}
	return run(append(append(iptables[:4:4], "-A"), rule...)...)
}

func run(command ...string) error {
	output, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, output)
	}
	return nil
}
