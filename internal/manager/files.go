package manager

import (
	"fmt"

	"github.com/go-logr/logr"

	"github.com/ostiary/ostiary/internal/connections"
	"github.com/ostiary/ostiary/internal/options"
	"github.com/ostiary/ostiary/webhooks"
)

const (
	// reservedFiles are for everything but connections to the ports: the API server, backends, files, the runtime.
	reservedFiles = 512
	// minConnections is the lowest limit that a replica starts with if the user chooses none. A few API servers use fewer.
	minConnections = 128
)

// limitConnections returns the limit on connections to the webhook for a process that may open so many files. Beyond the
// limit of files, no port accepts connections, and requests to the API server fail. A limit that the user chooses is an
// error if it does not fit; the default is lowered.
func limitConnections(o options.Options, files int, log logr.Logger) (int, error) {
	reserved := reservedFiles + connections.Spare
	for _, address := range []string{o.MetricsAddress, o.HealthAddress} {
		if address != "0" {
			reserved += maxPortConnections + connections.Spare
		}
	}
	available := files - reserved
	chosen := o.Load.Connections
	switch {
	case chosen > 0 && chosen > available && available < minConnections, chosen == 0 && available < minConnections:
		return 0, fmt.Errorf("the process may open %d files at RLIMIT_NOFILE: raise it to at least %d", files, max(chosen, minConnections)+reserved)
	case chosen > available:
		return 0, fmt.Errorf("%d connections need %d open files, but the process may open %d at --max-connections: give at most %d, or raise RLIMIT_NOFILE",
			chosen, chosen+reserved, files, available)
	case chosen > 0:
		return chosen, nil
	case available < webhooks.DefaultConnections:
		log.Info("The limit on connections is lowered to the number of open files: raise RLIMIT_NOFILE", "connections", available,
			"default", webhooks.DefaultConnections, "files", files, "needed", webhooks.DefaultConnections+reserved)
		return available, nil
	}
	return webhooks.DefaultConnections, nil
}
