// The DNS of a cluster for tests: CoreDNS with the plugins that it needs there, and without the many others
// that bring the client libraries of clouds along.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// In the order in which a question goes through them.
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"}
	coremain.Run()
}
