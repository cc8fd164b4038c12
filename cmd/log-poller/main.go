// Command log-poller reads the email service's sending log and publishes each new state
// of each entry as a delivery event.
package main

import (
	"errand/internal/programs"
)

func main() {
	programs.Main("log-poller", "Turns the email service's sending log into mail.delivery events.", new(programs.LogPoller))
}
