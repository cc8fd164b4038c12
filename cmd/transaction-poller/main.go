// Command transaction-poller reads the e-mandate service's transaction list and publishes each
// new state of each record as an event.
package main

import (
	"errand/internal/programs"
)

func main() {
	programs.Main("transaction-poller",
		"Turns the e-mandate service's transaction list into mandate.application and mandate.deduction events.", new(programs.TransactionPoller))
}
